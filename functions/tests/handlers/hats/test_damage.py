"""No damage of a catalogue is merged into its next version; a lost run is not fewer objects."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from stampede.cli.main import app
from stampede.errors import Damaged
from stampede.handlers.hats.catalogue import publish
from stampede.handlers.reconcile.positions import derive_positions
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.handlers.hats.test_publish import add
from tests.support.read.read_service import point
from tests.support.store.rows import table as points_table

PLACES = {"a": (45.0, 0.1), "b": (200.0, 60.0), "c": (10.0, -80.0), "d": (45.1, 0.2)}


def store(objects: Objects, names: str = "abcd", first: int = 0, source: int = 10) -> None:
    """Add a run of five points for each object."""
    for number, name in enumerate(names, first):
        ra, dec = PLACES[name]
        rows = [
            point(name, "ztf", source * ord(name) + n, 59000.0 + n, ra=ra, dec=dec)
            for n in range(5)
        ]
        add(objects, points_table(rows), Coverage.of({("t", 0): [number]}))


def rows_of(files: Objects) -> list[dict]:
    """The rows of a catalogue, in the order of its pixels."""
    keys = [info.key for info in files.list("objects/dataset/Norder")]
    tables = [pq.read_table(files.root / key, partitioning=None) for key in keys]
    return [row for table in tables for row in table.to_pylist()]


@pytest.fixture
def objects() -> MemoryObjects:
    objects = MemoryObjects()
    store(objects)
    return objects


@pytest.fixture
def files(tmp_path: Path) -> DirectoryObjects:
    return DirectoryObjects(tmp_path / "sky")


def pixel_with(files: Objects, name: str) -> str:
    for info in files.list("objects/dataset/Norder"):
        rows = pq.read_table(files.root / info.key, partitioning=None)
        if name in rows["object_id"].to_pylist():
            return info.key
    raise AssertionError(name)


@pytest.mark.long
def test_a_damaged_pixel_is_made_anew_from_the_store(objects, files, tmp_path) -> None:
    publish(objects, files, "sky")
    saved = {info.key: files.get(info.key) for info in files.list("")}
    store(objects, "d", first=10, source=20)  # it shares a pixel with "a"
    other = DirectoryObjects(tmp_path / "other")
    publish(objects, other, "sky")
    expected, key, chosen = rows_of(other), pixel_with(files, "a"), random.Random(1)
    wrong = []
    for _ in range(40):
        damaged = bytearray(saved[key])
        damaged[place := chosen.randrange(len(damaged))] ^= 1 << chosen.randrange(8)
        for each, data in (saved | {key: bytes(damaged)}).items():
            files.put(each, data)
        try:
            publish(objects, files, "sky")
        except Exception as error:
            wrong.append((place, repr(error)))
        else:
            if rows_of(files) != expected:
                wrong.append((place, "other rows"))
    assert wrong == []


@pytest.mark.parametrize("fault", ["another pixel's", "an older one", "cut short", "gone"])
def test_any_pixel_that_is_not_the_one_written_is_made_anew(objects, files, fault) -> None:
    store(objects, "d", first=10, source=30)
    publish(objects, files, "sky")
    before = files.get(pixel_with(files, "a"))
    store(objects, "d", first=11, source=20)
    publish(objects, files, "sky")
    expected, key = rows_of(files), pixel_with(files, "a")
    faults = {
        "another pixel's": files.get(pixel_with(files, "b")),
        "an older one": before,
        "cut short": before[:-1],
    }
    files.put(key, faults[fault]) if fault in faults else files.delete(key)
    assert publish(objects, files, "sky").written == 1  # nothing is new
    assert rows_of(files) == expected


def lose_positions(objects: Objects, number: int) -> None:
    keys = [info.key for info in objects.list("tables/positions/")]
    objects.delete(keys[number])


def test_a_lost_run_of_positions_is_an_error_until_reconcile_derives_it(objects, files) -> None:
    lose_positions(objects, 1)
    with pytest.raises(Damaged, match=r"`positions` lacks .*stampede reconcile"):
        publish(objects, files, "sky")
    assert [*files.list("")] == []
    assert all(derived for _, derived in derive_positions(objects, repair=True))
    assert publish(objects, files, "sky").objects == 4


@pytest.mark.parametrize("published", [False, True])
def test_positions_of_points_that_kafka_did_not_send_may_not_lack_either(files, published) -> None:
    objects = MemoryObjects()
    store(objects, "abc")
    if published:
        publish(objects, files, "sky")
    table = Table(objects, DETECTIONS)
    table.append(points_table([point("d", "ztf", 5, 59000.0, ra=45.1, dec=0.2)]), Coverage())
    with pytest.raises(Damaged, match=r"`positions` lacks .*stampede reconcile"):
        publish(objects, files, "sky")


def test_objects_without_any_position_are_no_fault(objects, files) -> None:
    forced = [point("e", "ztf", 5, 59000.0, forced=True)]
    add(objects, points_table(forced), Coverage.of({("t", 0): [20]}))
    assert publish(objects, files, "sky").objects == 4


def test_a_run_of_points_that_was_there_may_not_be_gone(objects, files) -> None:
    publish(objects, files, "sky")
    objects.delete(next(info.key for info in objects.list("tables/detections/")))
    with pytest.raises(Damaged, match=r"`detections` lacks .* that it had"):
        publish(objects, files, "sky")


def test_the_command_fails_and_says_what_to_do(tmp_path, monkeypatch) -> None:
    objects = DirectoryObjects(tmp_path / "store")
    store(objects)
    monkeypatch.setenv("STAMPEDE_STORE", f"file://{tmp_path / 'store'}")
    place = str(tmp_path / "sky")
    runner = CliRunner()
    assert runner.invoke(app, ["publish", "hats", place]).exit_code == 0
    lose_positions(objects, 2)
    done = runner.invoke(app, ["publish", "hats", place, "--again"])
    assert done.exit_code != 0
    assert "stampede reconcile" in f"{done.output}{done.exception}"
