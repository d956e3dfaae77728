"""Every kind of object is held to its name and to every byte that was written."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.alerts.columns import CUTOUT
from stampede.alerts.schema_groups import RawAlerts
from stampede.deadletters.dead_letter import write_letters
from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity import verification
from stampede.store.integrity.ledger import expect
from stampede.store.integrity.verification import verify
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.packs.raw_alerts import write_raw
from stampede.store.runs.run_name import RunName, digest
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.runs.writer import GROUP_ROWS, RunWriter
from stampede.store.tables.table import Table
from tests.support.events.dead_letters import accept, event
from tests.support.store.rows import cutout, detection, many, table
from tests.support.store.watched_objects import Changed, Failing

COVERAGE = Coverage.of({("alerts", 0): range(10)})
NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture(scope="module")
def store() -> MemoryObjects:
    """A store with at least one object of every kind, and a merged run of several parts."""
    objects = MemoryObjects()
    one = Table(objects, DETECTIONS, threads=1)
    one.append(many(2 * GROUP_ROWS), COVERAGE)
    one.append(many(2 * GROUP_ROWS, version=1), COVERAGE)
    compact(one, NOW, Policy(fanout=2, run_rows=2 * GROUP_ROWS, slice_rows=GROUP_ROWS))
    one.append(DETECTIONS.schema.empty_table(), COVERAGE)
    pack = write_pack(table([cutout(n, "science", b"image") for n in range(9)], CUTOUT), COVERAGE)
    objects.put(pack.key, pack.data.to_pybytes())
    Table(objects, CUTOUTS).append(pack.locations, COVERAGE)
    objects.put(*write_letters("cutouts", [event(1)]))
    accept(objects)
    key, data, _ = write_raw(RawAlerts("ztf", 61000, pa.table({"candid": [1, 2]})))
    objects.put(key, bytes(data))
    expect(objects, "files", 12)
    return objects


@pytest.fixture(autouse=True, params=["at once", "by row groups"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small runs are read at once, large ones some row groups at a time."""
    if request.param == "by row groups":
        monkeypatch.setattr(verification, "_ONE_GET", 0)
        monkeypatch.setattr(verification, "_GROUPS", 1)


def test_what_was_written_is_sound(store: MemoryObjects) -> None:
    infos = list(store.list(""))
    kinds = {info.key.partition("/")[0] for info in infos}
    assert kinds == {"packs", "tables", "alerts", "deadletters", "expected", "checkpoints"}
    assert len([info for info in infos if "of2" in info.key]) == 2
    for info in infos:
        verify(store, info)


def test_every_damage_is_found(store: MemoryObjects) -> None:
    generator, tried = random.Random(3), MemoryObjects()
    infos = [info for info in store.list("") if not info.key.startswith("expected/")]
    for number in range(600):
        info = generator.choice(infos)
        data = bytearray(store.get(info.key))
        # As many near the end, where the footer is.
        place = generator.randrange(max(0, len(data) - 2000) if number % 2 else 0, len(data))
        if number % 10 == 0:
            data = data[:place]
        elif number % 10 == 1:
            data = data[-place - 1 :] if place + 1 < len(data) else data[:-1]
        else:
            data[place] ^= 1 << generator.randrange(8)
        tried.put(info.key, bytes(data))
        with pytest.raises(Damaged, match=info.key):
            verify(tried, tried.head(info.key))


def swapped(store: MemoryObjects) -> Iterator[tuple[str, str]]:
    keys = [info.key for info in store.list("") if not info.key.startswith("expected/")]
    return ((one, other) for one in keys for other in keys if one != other)


def test_an_object_under_the_name_of_another_is_found(store: MemoryObjects) -> None:
    tried = MemoryObjects()
    for one, other in swapped(store):
        tried.put(one, store.get(other))
        with pytest.raises(Damaged, match=one):
            verify(tried, tried.head(one))


def run_of(*tables: pa.Table, level: int = 1) -> tuple[str, bytes]:
    """A run whose footer and pages are sound, whatever its rows are."""
    writer = RunWriter(DETECTIONS)
    for rows in tables:
        writer.add(rows)
    data = writer.close(level, (), COVERAGE).to_pybytes()
    return RunName(level, digest(data)).key("detections"), data


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize(
    "tables",
    [
        pytest.param([many(10), many(10)], id="groups not in order"),
        pytest.param([many(10).take(pa.array([1, 2, 2, 3]))], id="a repeat"),
        pytest.param([many(10).take(pa.array([1, 3, 2, 4]))], id="rows not in order"),
        pytest.param([table([detection("a", 1)]), table([detection("a", 1)])], id="repeat across"),
    ],
)
def test_rows_out_of_order_are_found(tables: list, level: int) -> None:
    objects = MemoryObjects()
    key, data = run_of(*tables, level=level)
    objects.put(key, data)
    with pytest.raises(Damaged, match="sorted"):
        verify(objects, objects.head(key))


@pytest.mark.parametrize(
    "key",
    [
        "notes.txt",
        "packs/61000/notes.txt",
        "tables/unknown/0000-" + "ab" * 16 + ".parquet",
        "tables/detections/0000-" + "ab" * 16,
        "tables/detections/0001-" + "ab" * 16 + "-3of2.parquet",
        "tables/detections/deeper/0000-" + "ab" * 16 + ".parquet",
    ],
)
def test_a_foreign_name_is_found(key: str) -> None:
    objects = MemoryObjects()
    objects.put(key, b"hello")
    with pytest.raises(Damaged, match="not the name"):
        verify(objects, objects.head(key))


def test_a_store_that_fails_is_no_damage(store: MemoryObjects) -> None:
    for info in store.list(""):
        for error in (StoreDown, NotFound):
            with pytest.raises(error):
                verify(Failing(store, error), info)


def test_one_damaged_answer_is_no_damage(store: MemoryObjects) -> None:
    for info in store.list(""):
        first = iter([True])

        def read(data: bytes, first: Iterator[bool] = first) -> bytes:
            return data[:-1] + b"\0" if next(first, False) else data

        verify(Changed(store, read=read), info)


def unreadable_column(data: bytes, group: int, column: str) -> bytes:
    """A file with a page that no reader can decompress."""
    metadata = pq.read_metadata(pa.BufferReader(data)).row_group(group)
    chunk = metadata.column(DETECTIONS.schema.get_field_index(column))
    end = chunk.data_page_offset + chunk.total_compressed_size
    return data[: end - 9] + bytes(9) + data[end:]


@pytest.mark.parametrize("sampled", [False, True])
def test_the_sample_finds_what_cannot_be_read_under_a_right_digest(
    monkeypatch: pytest.MonkeyPatch, sampled: bool
) -> None:
    """A machine with bad memory compressed it. Other columns than the key are read by sample."""
    objects = MemoryObjects()
    run = Table(objects, DETECTIONS, threads=1).append(many(2 * GROUP_ROWS), Coverage())
    bad = unreadable_column(objects.get(run), 1, "processed_mjd")
    key = run.rpartition("-")[0] + f"-{digest(bad)}.parquet"
    objects.put(key, bad)
    monkeypatch.setattr(verification, "SAMPLE", float(sampled))
    if sampled:
        with pytest.raises(Damaged, match=f"{key} is damaged"):
            verify(objects, objects.head(key))
    else:
        verify(objects, objects.head(key))
        bad = unreadable_column(objects.get(run), 1, "object_id")
        key = run.rpartition("-")[0] + f"-{digest(bad)}.parquet"
        objects.put(key, bad)
        with pytest.raises(Damaged, match=f"{key} is damaged"):
            verify(objects, objects.head(key))
