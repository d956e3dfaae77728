"""How much space cutouts take, beside the same files gzipped one by one, as many stores keep them.

A pack holds the PSFs of a visit and detector once, so its size depends on what its alerts share:
everything, as the alerts of one visit and detector do, or nothing. ZTF's stamps are gzipped by ZTF.
The index adds their locations, the table of positions is beside it. The size on a 4+2 pool is
computed, not measured: an object is cut into stripes of 4 chunks of 4 KiB, the last stripe is
padded, and each chunk takes whole allocation units on its disk.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stampede.alerts.positions import positions_of
from stampede.images.fits import gzip_file
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.runs.run_name import prefix
from stampede.store.runs.schema import CUTOUTS, POSITIONS
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival
from stampede_bench.ingestion.decode import batch_decoder
from stampede_bench.instruments import load
from stampede_bench.instruments.load import Load


class Bounds(NamedTuple):
    """Of the size of a pack and its index, divided by that of the gzipped files."""

    requirement: Bound
    target: Bound | None = None


SHARED = Bounds(Bound("<=", 0.50, ratio=True), Bound("<=", 0.42, ratio=True))
DIFFERENT = Bounds(Bound("<=", 0.85, ratio=True), Bound("<=", 0.70, ratio=True))
# ZTF's stamps cannot be made smaller: lengths, a few columns and the index come on top.
AS_SENT = Bounds(Bound("<=", 1.005, ratio=True))
A_DETECTOR = 53  # alerts, Rubin's mean: 10,000 a visit, 189 detectors
DATA, PARITY = 4, 2
CHUNK = 4 << 10  # `stripe_unit`, Ceph's default
PIECE = 4 << 20  # RGW splits S3 objects into Ceph objects of this size (`rgw_obj_stripe_size`)
UNITS = {"4 KiB, flash and all since Pacific": 4 << 10, "64 KiB, disks until then": 64 << 10}


def measure(context: Context) -> Iterator[Figure]:
    """A pack of each load: simulated ones, and real ones if there are any."""
    for alerts, bounds in loads(context):
        context.progress(f"storing {len(alerts.messages)} {alerts.title}")
        yield from figures(alerts, bounds)


def loads(context: Context) -> Iterator[tuple[Load, Bounds]]:
    """What to store."""
    count = context.scaled(300, 300, least=100)
    yield load.exposures(6, A_DETECTOR), SHARED
    yield load.different_exposures(count), DIFFERENT
    yield load.simulated("ztf", count, 10), AS_SENT
    if context.real:
        lsst, _ = load.real(context.real, A_DETECTOR)
        _, ztf = load.real(context.real, count)
        yield lsst, SHARED
        yield from ((different, DIFFERENT) for different in load.real_detectors(context.real))
        yield ztf, AS_SENT


def figures(alerts: Load, bounds: Bounds) -> Iterator[Figure]:
    """The figures of one pack."""
    objects, rows = MemoryObjects(), batch_decoder().cutouts(alerts.messages).rows
    coverage = Coverage.of({("bench", 0): range(len(alerts.messages))})
    pack = write_pack(rows, coverage)
    objects.put(pack.key, memoryview(pack.data))
    Table(objects, CUTOUTS, threads=1).append(pack.locations, coverage)
    sizes = [len(gzip_file(file)) for file in rows["fits"].to_pylist() if file]
    stored = [info.size for info in objects.list("")]
    subject, single = f"cutouts of {alerts.title}", Rival("each file gzipped", sum(sizes) / 1e3)
    total = sum(stored) / 1e3
    yield Figure(
        subject, "pack and index", total, "KB", single, bounds.requirement, None, bounds.target
    )
    index = (sum(stored) - pack.data.size) / 1e3
    yield Figure(subject, "of that the index", index, "KB", single)
    positions = positions_of(batch_decoder().detections(alerts.messages).rows)
    Table(objects, POSITIONS, threads=1).append(positions, coverage)
    size = sum(info.size for info in objects.list(prefix(POSITIONS.name))) / 1e3
    yield Figure(subject, f"the table positions, {positions.num_rows:,} rows", size, "KB", single)
    for what, unit in UNITS.items():
        one_each = Rival("an object for each file", erasure_coded(sizes, unit) / sum(sizes))
        packed = erasure_coded(stored, unit) / sum(sizes)
        name = f"bytes on {DATA}+{PARITY}, units of {what}"
        yield Figure(subject, name, packed, "bytes/byte", one_each)


def erasure_coded(sizes: Sequence[int], unit: int, data: int = DATA, parity: int = PARITY) -> int:
    """Bytes that objects of these sizes take on erasure-coded disks."""
    total = 0
    for size in sizes:
        for start in range(0, size, PIECE):
            stripes = -(-min(PIECE, size - start) // (data * CHUNK))
            total += (data + parity) * -(-stripes * CHUNK // unit) * unit
    return total
