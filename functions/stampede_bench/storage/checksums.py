"""What checksums cost: CPU time of writing and reading with them and without, in turn.

Without means: no CRCs of pages, footers and images are computed or verified. The digests in names
are not counted: they were there before, because S3's signature needs them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib

from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs import images as pack_images
from stampede.store.packs import pack as packs
from stampede.store.packs.pack import write_pack
from stampede.store.parquet import writer as parquet_writer
from stampede.store.runs import writer as run_writer
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from stampede_bench.figures import Context, Figure, Must, Rival, over_rounds
from stampede_bench.ingestion.decode import UNIT, batch_decoder, per_alert, run_of
from stampede_bench.instruments import load
from stampede_bench.instruments.load import Load

SHARE = 0.03
# CPU time of an alert in all processes of `ingest`, ms (docs/benchmarks.md).
INGEST_MS = {"lsst": 3.10, "ztf": 1.44}
# CPU time of a cutout by id over HTTP, µs (docs/benchmarks.md): 2.8 ms.
GET_US = 2800.0
LOOKUPS = 200


def measure(context: Context) -> Iterator[Figure]:
    """Packs and runs of each survey's alerts, a lookup in a run, and an image."""
    count, rounds = context.scaled(300, 100, least=3), context.scaled(15, 7, least=3)
    for survey in ("lsst", "ztf"):
        alerts = load.simulated(survey, count, 10)
        context.progress(f"writing {count} {alerts.title}, {rounds} times with and without")
        cutouts, points = decoded(alerts)
        yield from over_rounds([list(written(alerts, cutouts, points)) for _ in range(rounds)])
    context.progress(f"{LOOKUPS} row groups, {rounds} times with and without")
    yield from over_rounds([list(read(count)) for _ in range(rounds)])


def decoded(alerts: Load) -> tuple[pa.Table, pa.Table]:
    """The cutouts and the points of the alerts."""
    reader = batch_decoder()
    return reader.cutouts(alerts.messages).rows, reader.detections(alerts.messages).rows


def written(alerts: Load, cutouts: pa.Table, points: pa.Table) -> Iterator[Figure]:
    """The figures of one round of writing."""
    count, subject = len(alerts.messages), f"checksums: {alerts.title}"
    works: dict[str, Callable[[], Any]] = {
        "a pack of images": lambda: write_pack(cutouts, Coverage()),
        "a run of points": lambda: run_of(DETECTIONS, points, Coverage()),
    }
    added = 0.0
    for name, work in works.items():
        spent, _ = per_alert(work, count)
        with no_checksums():
            before, _ = per_alert(work, count)
        added += spent - before
        yield Figure(subject, name, spent, UNIT, Rival("without checksums", before))
    whole = Rival("an alert in all processes of `ingest`", INGEST_MS[alerts.survey])
    yield Figure(subject, "added", added, UNIT, whole, Must("<=", SHARE, ratio=True))


def read(count: int) -> Iterator[Figure]:
    """The figures of one round of reading: a row group decoded, as a lookup does, and an image."""
    objects = MemoryObjects()
    one = Table(objects, DETECTIONS, threads=1)
    one.append(load_points(count), Coverage())
    [run] = one.runs()
    file = one.reader.open(run)
    [(group, block)] = file.fetch([0])
    work = partial(many_times, partial(file.decode, group, block))
    spent, _ = per_alert(work, LOOKUPS)
    with no_checksums():
        before, _ = per_alert(work, LOOKUPS)
    subject = "checksums: reading"
    yield Figure(subject, "a row group", 1e3 * spent, "µs", Rival("without", 1e3 * before))
    whole = Rival("a cutout by id over HTTP", GET_US)
    must = Must("<=", SHARE, ratio=True)
    yield Figure(subject, "added to a row group", 1e3 * (spent - before), "µs", whole, must)
    image = Random(1).randbytes(15_000)
    spent, _ = per_alert(lambda: many_times(lambda: isal_zlib.crc32(image)), LOOKUPS)
    yield Figure(subject, "an image of 15 KB", 1e3 * spent, "µs", whole, must)


def load_points(count: int) -> pa.Table:
    """Points of LSST alerts, at least a row group of them."""
    return decoded(load.simulated("lsst", max(30, count), 10))[1]


def many_times(work: Callable[[], Any]) -> None:
    """`LOOKUPS` times."""
    for _ in range(LOOKUPS):
        work()


@contextmanager
def no_checksums() -> Iterator[None]:
    """Write and read as before there were checksums."""

    class Writer(pq.ParquetWriter):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options | {"write_page_checksum": False})

    class File(pq.ParquetFile):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options | {"page_checksum_verification": False})

    none = SimpleNamespace(crc32=lambda *_: 0)

    def sealed(data: pa.Buffer) -> pa.Buffer:
        return data

    with (
        patch.object(pq, "ParquetWriter", Writer),
        patch.object(pq, "ParquetFile", File),
        patch.object(packs, "seal", sealed),
        patch.object(run_writer, "seal", sealed),
        patch.object(parquet_writer, "isal_zlib", none),
        patch.object(pack_images, "isal_zlib", none),
    ):
        yield
