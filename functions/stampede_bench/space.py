"""What is stored in addition to the cutouts, and how much that is on erasure-coded disks.

Gzipped cutouts are the minimum. A pack adds lengths and a few columns, the index adds their
locations. The size on a 4+2 pool is computed, not measured: an object is cut into stripes of 4
chunks of 4 KiB, the last stripe is padded, and each chunk takes whole allocation units on its disk.
"""

from collections.abc import Iterator, Sequence

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framing
from stampede.functions.decoding import SpoolFile
from stampede.images.fits import gzip_file
from stampede.settings import Settings
from stampede.store.coverage import Coverage
from stampede.store.memory import MemoryObjects
from stampede.store.packs import write_pack
from stampede.store.schema import CUTOUTS
from stampede.store.tables import Table
from stampede_bench import load
from stampede_bench.decode import SECRET
from stampede_bench.figures import Context, Figure, Must, Rival
from stampede_bench.load import Load

MUST, AIM = Must("<=", 1.03, ratio=True), Must("<=", 1.01, ratio=True)
DATA, PARITY = 4, 2
CHUNK = 4 << 10  # `stripe_unit`, Ceph's default
PIECE = 4 << 20  # RGW splits S3 objects into Ceph objects of this size (`rgw_obj_stripe_size`)
UNITS = {"4 KiB, flash and all since Pacific": 4 << 10, "64 KiB, disks until then": 64 << 10}


def measure(context: Context) -> Iterator[Figure]:
    """A pack of each survey's alerts: simulated ones, and real ones if there are any."""
    count = context.scaled(300, 300, least=3)
    loads = [load.simulated(survey, count, 10) for survey in ("lsst", "ztf")]
    if context.real:
        loads += load.real(context.real, count)
    for alerts in loads:
        context.progress(f"storing {len(alerts.messages)} {alerts.title}")
        yield from figures(alerts)


def figures(alerts: Load) -> Iterator[Figure]:
    """The figures of one pack."""
    settings, objects = Settings(), MemoryObjects()
    framing, decoder = Framing(settings.max_alert_bytes), Decoder(SpoolFile(settings.spool))
    rows = (
        BatchDecoder(framing, decoder, lambda: float("inf"), SECRET).cutouts(alerts.messages).rows
    )
    coverage = Coverage.of({("bench", 0): range(len(alerts.messages))})
    pack = write_pack(rows, coverage)
    objects.put(pack.key, memoryview(pack.data))
    Table(objects, CUTOUTS, threads=1).append(pack.locations, coverage)
    sizes = [len(gzip_file(file)) for file in rows["fits"].to_pylist() if file]
    stored = [info.size for info in objects.list("")]
    subject, least = f"cutouts of {alerts.title}", Rival("the gzipped cutouts", sum(sizes) / 1e3)
    yield Figure(subject, "pack and index", sum(stored) / 1e3, "KB", least, MUST, None, AIM)
    yield Figure(subject, "of that the index", (sum(stored) - pack.data.size) / 1e3, "KB", least)
    for what, unit in UNITS.items():
        single = Rival("an object for each cutout", erasure_coded(sizes, unit) / sum(sizes))
        packed = erasure_coded(stored, unit) / sum(sizes)
        name = f"raw bytes on {DATA}+{PARITY}, units of {what}"
        yield Figure(subject, name, packed, "bytes/byte", single)


def erasure_coded(sizes: Sequence[int], unit: int) -> int:
    """Bytes that objects of these sizes take on erasure-coded disks."""
    total = 0
    for size in sizes:
        for start in range(0, size, PIECE):
            stripes = -(-min(PIECE, size - start) // (DATA * CHUNK))
            total += (DATA + PARITY) * -(-stripes * CHUNK // unit) * unit
    return total
