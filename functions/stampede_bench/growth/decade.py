"""The start of a process with ten years of alerts: its CPU time, its requests, its bytes.

Only a listing and the objects below `checkpoints/` are there, in memory: a start reads no more. The
listing is parsed from the XML of S3. Parts are made up: their sections are as many and as long as
those of 4 million rows, and one offset in 10,000 is missing.
"""

import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.runs.bloom_filters import Filter
from stampede.store.runs.index_sections import Section, Sections, as_text
from stampede.store.runs.packed_coverage import packed
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import RunName, digest
from stampede.store.runs.schema import ALL_TABLES, TABLES, TableSpec
from stampede.store.runs.writer import GROUP_ROWS, SECTION_GROUPS, SMALL_GROUPS
from stampede.store.s3.listings import PAGE, page_of
from stampede.store.tables import checkpoint_files, offset_files
from stampede.store.tables.checkpoint_files import MOST_NEW_PARTS, put_checkpoint
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival, percentile
from stampede_bench.growth.parts import with_holes
from stampede_bench.instruments.counting_store import CountingStore
from stampede_bench.instruments.synthetic import FLUSH, Made, shape

ALERTS = 3 * 10**10
ROWS = {"cutouts": 3, "detections": 2}
"""Rows that an alert adds to a table; to any other, one."""
FANOUT, RUN_ROWS = 8, 4_000_000
TRIES = 5
SECONDS, AIM, MEGABYTES = Bound("<=", 2.0), Bound("<=", 1.4), Bound("<=", 5.0)
NEVER = datetime(2026, 1, 1, tzinfo=UTC)
NUMBERS = 1_000_000_000_000
"""The least number in a leading key: all have as many digits."""


class Start(NamedTuple):
    """What starts of a table took, in a process of their own; and then a new checkpoint."""

    seconds: list[float]  # of CPU
    requests: float
    read: float  # bytes, besides the listing
    writing: float  # seconds of CPU
    written: float  # bytes


class Listed(CountingStore):
    """A store that lists parts which are not there."""

    def __init__(self, inner: Objects, parts: Sequence[ObjectInfo]) -> None:
        super().__init__(inner)
        ordered = sorted(parts)
        self._pages = [
            _page(ordered[first : first + PAGE]) for first in range(0, len(ordered), PAGE)
        ]

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `Objects.list`."""
        if not prefix.startswith("tables/"):
            yield from super().list(prefix, after)
            return
        for page in self._pages:
            self._count("list")
            yield from page_of(page).objects


def measure(context: Context) -> Iterator[Figure]:
    """A start of each table, or of the two that lookups read most, if it shall be quick.

    Beside it is what a checkpoint takes that has all in one object.
    """
    alerts = context.scaled(ALERTS, ALERTS, least=10**9)
    total = 0.0
    tables = [*(TABLES if context.quick else ALL_TABLES).values()]
    for spec in tables:
        context.progress(f"a start of {spec.name} with {alerts:,} alerts")
        parts = list(made_up(spec, alerts))
        found = _in_a_process(spec, parts)
        with (
            patch.object(checkpoint_files, "LARGE", len(parts) + 1),
            patch.object(offset_files, "LARGE_BLOCK", 1 << 40),
        ):
            whole = _in_a_process(spec, parts)
        spent = percentile(found.seconds, 50)
        total += spent
        subject = f"start of {spec.name}: {alerts:,} alerts, {len(parts):,} parts"
        beside = "sections and offsets in the checkpoint"
        rival = Rival(beside, percentile(whole.seconds, 50))
        yield Figure(
            subject, "CPU until it can be asked, p50", spent, "s", rival, SECONDS, None, AIM
        )
        rival = Rival(beside, whole.read / 1e6)
        name = "read, besides the listing"
        yield Figure(subject, name, found.read / 1e6, "MB", rival, MEGABYTES)
        yield Figure(subject, "requests", found.requests, "requests")
        rival = Rival(beside, whole.written / 1e6)
        name = f"written by the next checkpoint, {MOST_NEW_PARTS} parts later"
        yield Figure(subject, name, found.written / 1e6, "MB", rival)
        rival = Rival(beside, whole.writing)
        yield Figure(subject, "CPU of writing it", found.writing, "s", rival)
    subject = f"start of a process that reads {len(tables)} tables, {alerts:,} alerts"
    yield Figure(subject, "CPU until they can be asked", total, "s", None, None, None, SECONDS)


def _in_a_process(spec: TableSpec, parts: Sequence[RunInfo]) -> Start:
    """Write a checkpoint of these parts, and start from it in another process."""
    objects = MemoryObjects()
    put_checkpoint(objects, spec, parts)
    stored = {info.key: objects.get(info.key) for info in objects.list("")}
    infos = [part.object for part in parts]
    limits = checkpoint_files.LARGE, offset_files.LARGE_BLOCK
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        return other.submit(_start, spec.name, stored, infos, limits).result()


def _start(
    name: str, stored: Mapping[str, bytes], infos: Sequence[ObjectInfo], limits: tuple[int, int]
) -> Start:
    spec, objects = ALL_TABLES[name], MemoryObjects()
    for key, data in stored.items():
        objects.put(key, data)
    store = Listed(objects, infos)
    spent = []
    for _ in range(TRIES):
        begin = time.process_time()
        table = Table(store, spec, threads=1)
        table.refresh()
        spent.append(time.process_time() - begin)
        if len(table.listed()) != len(infos):
            raise AssertionError(f"{len(table.listed())} parts are read")
    requests, read = store.requests.total() / TRIES, store.bytes["get"] / TRIES
    parts = [*table.listed(), *_new(spec, MOST_NEW_PARTS)]
    store.clear()
    with (
        patch.object(checkpoint_files, "LARGE", limits[0]),
        patch.object(offset_files, "LARGE_BLOCK", limits[1]),
    ):
        begin = time.process_time()
        put_checkpoint(store, spec, parts, table.listing.checkpoint)
    return Start(spent, requests, read, time.process_time() - begin, store.bytes["put"])


def _page(infos: Sequence[ObjectInfo]) -> bytes:
    """A page of a listing as RADOS Gateway writes it."""
    rows = "".join(
        f"<Contents><Key>{info.key}</Key>"
        f"<LastModified>{info.modified:%Y-%m-%dT%H:%M:%S}.000Z</LastModified>"
        f"<ETag>&quot;{info.etag}&quot;</ETag><Size>{info.size}</Size>"
        "<StorageClass>STANDARD</StorageClass>"
        "<Owner><ID>stampede</ID><DisplayName>stampede</DisplayName></Owner>"
        "<Type>Normal</Type></Contents>"
        for info in infos
    )
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<ListBucketResult xmlns="{space}">{rows}</ListBucketResult>'.encode()


def made_up(spec: TableSpec, alerts: int) -> Iterator[RunInfo]:
    """The parts that compaction leaves."""
    chance = np.random.default_rng(1)
    for run in shape(alerts // FLUSH, FANOUT):
        yield from _parts(spec, run, alerts, chance)


def _new(spec: TableSpec, count: int) -> Iterator[RunInfo]:
    """Parts of level 0 that came since."""
    chance = np.random.default_rng(2)
    for number in range(count):
        run = Made(0, ALERTS // FLUSH + number, 1)
        yield from _parts(spec, run, 2 * ALERTS, chance)


def _parts(
    spec: TableSpec, run: Made, alerts: int, chance: np.random.Generator
) -> Iterator[RunInfo]:
    first, end = run.first * FLUSH, (run.first + run.flushes) * FLUSH
    coverage = with_holes(first, end)
    coverage = packed(coverage) if run.level else coverage
    rows = run.flushes * FLUSH * ROWS.get(spec.name, 1)
    count = max(1, rows // RUN_ROWS)
    inputs = tuple(
        f"{run.level - 1:04}-{digest(spec.name, str(run), str(number))}"
        for number in range(FANOUT if run.level else 0)
    )
    # Ids of alerts grow with time; those of objects and cells are in every run.
    low, width = (first, end - first) if spec.name in ("cutouts", "packets") else (0, alerts)
    for number in range(count):
        name = RunName(run.level, digest(spec.name, str(run)), number, count)
        least, greatest = (low + width * edge // count for edge in (number, number + 1))
        sections = _sections(spec, rows // count, least, greatest, chance)
        yield RunInfo(
            name,
            ObjectInfo(
                name.key(spec.name),
                15 * (rows // count) + int(chance.integers(1 << 20)),
                chance.bytes(16).hex(),
                NEVER + timedelta(seconds=int(chance.integers(3 * 10**8))),
            ),
            inputs,
            coverage,
            rows // count,
            _key(spec, least),
            _key(spec, greatest),
            chance.bytes(4).hex(),
            Filter(chance.bytes(1024)) if spec.filtered and sections is None else None,
            sections,
        )


def _sections(
    spec: TableSpec, rows: int, least: int, greatest: int, chance: np.random.Generator
) -> Sections | None:
    """Sections of random lengths, as those of real parts: none has the bytes of another."""
    groups = -(-rows // GROUP_ROWS)
    if groups <= SMALL_GROUPS:
        return None
    count, start, made = -(-groups // SECTION_GROUPS), 4 + 15 * rows, list[Section]()
    inner = np.sort(chance.integers(least, greatest + 1, count - 1)).tolist()
    lengths = chance.integers(3_000, 6_000, count).tolist()
    bits = chance.integers(20_000, 200_000, count).tolist() if spec.filtered else [0] * count
    crc32s = chance.integers(1 << 32, size=count).tolist()
    numbers = zip([least, *inner], lengths, bits, crc32s, strict=True)
    for place, (number, *more) in enumerate(numbers):
        made.append(Section(_key(spec, number), SECTION_GROUPS * place, start, *more))
        start += made[-1].length
    return Sections(as_text(made), _key(spec, greatest), spec)


def _key(spec: TableSpec, number: int) -> Any:
    return str(NUMBERS + number) if spec.leads_text else NUMBERS + number
