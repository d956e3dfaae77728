"""What is stored beside the cutouts themselves, and what that takes on erasure-coded disks.

Gzipped cutouts are the least there is to store. A pack adds lengths and a few columns, the index
where each lies. On a pool of 4+2 an object is cut into stripes of 4 chunks of 4 KiB and filled up
to a whole one, and each chunk takes a whole allocation unit on its disk: computed, not measured.
"""

from collections.abc import Iterator, Sequence

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framing
from stampede.settings import Settings
from stampede.store.coverage import Coverage
from stampede.store.memory import MemoryObjects
from stampede.store.packs import write_pack
from stampede.store.tables import CUTOUTS, Table
from stampede_bench import load
from stampede_bench.figures import Context, Figure, Must, Rival
from stampede_bench.load import Load

MUST, AIM = Must("<=", 1.03, ratio=True), Must("<=", 1.01, ratio=True)
DATA, PARITY = 4, 2
CHUNK = 4 << 10  # `stripe_unit`, Ceph's default
PIECE = 4 << 20  # an S3 object is so many bytes each of Ceph's own (`rgw_obj_stripe_size`)
UNITS = {"4 KiB, flash and all since Pacific": 4 << 10, "64 KiB, disks until then": 64 << 10}


def measure(context: Context) -> Iterator[Figure]:
    """A pack of alerts of each survey, simulated and, where there are any, real ones."""
    count = context.scaled(300, 300, least=3)
    loads = [load.simulated(survey, count, 10) for survey in ("lsst", "ztf")]
    if context.real:
        loads += load.real(context.real, count)
    for given in loads:
        context.progress(f"storing {len(given.messages)} {given.title}")
        yield from figures(given)


def figures(given: Load) -> Iterator[Figure]:
    """Of one pack."""
    settings, objects = Settings(), MemoryObjects()
    framing, decoder = Framing(settings.max_alert_bytes), Decoder(settings.spool)
    rows = BatchDecoder(framing, decoder, lambda: float("inf")).cutouts(given.messages).rows
    coverage = Coverage.of({("bench", 0): range(len(given.messages))})
    pack = write_pack(rows, coverage)
    objects.put(pack.key, memoryview(pack.data))
    Table(objects, CUTOUTS, threads=1).append(pack.places, coverage)
    sizes = [length for length in pack.places["length"].to_pylist() if length]
    stored = [info.size for info in objects.list("")]
    subject, least = f"cutouts of {given.title}", Rival("the gzipped cutouts", sum(sizes) / 1e3)
    yield Figure(subject, "pack and index", sum(stored) / 1e3, "KB", least, MUST, None, AIM)
    yield Figure(subject, "of that the index", (sum(stored) - pack.data.size) / 1e3, "KB", least)
    for what, unit in UNITS.items():
        single = Rival("an object for each cutout", erasure_coded(sizes, unit) / sum(sizes))
        packed = erasure_coded(stored, unit) / sum(sizes)
        name = f"raw bytes on {DATA}+{PARITY}, units of {what}"
        yield Figure(subject, name, packed, "bytes/byte", single)


def erasure_coded(sizes: Sequence[int], unit: int) -> int:
    """Bytes on disks of objects of these sizes."""
    whole = 0
    for size in sizes:
        for start in range(0, size, PIECE):
            stripes = -(-min(PIECE, size - start) // (DATA * CHUNK))
            whole += (DATA + PARITY) * -(-stripes * CHUNK // unit) * unit
    return whole
