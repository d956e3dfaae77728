"""A checkpoint under another number, or of another bucket, is none; small tables have one too."""

from datetime import UTC, datetime, timedelta

import pytest

from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.handlers.reconcile.checkpoints import rebuild
from stampede.read.app import make_app
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity.verification import verify
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables import checkpoint_files
from stampede.store.tables.checkpoint import CHECKPOINTS, is_checkpoint
from stampede.store.tables.checkpoint_files import newest_checkpoint
from stampede.store.tables.table import Table
from tests.support.read.read_service import fill as fill_site
from tests.support.read.read_service import sample_cutouts, sample_points, serving
from tests.support.store.rows import many
from tests.support.store.watched_objects import Forwarding

PINNED = f"{CHECKPOINTS}detections/9999999999-"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "MOST_NEW_PARTS", 4)


def fill(objects: Objects, topic: str, count: int = 8, first: int = 0) -> None:
    for number in range(first, first + count):
        Table(objects, DETECTIONS).append(many(30, 3, number), Coverage.of({(topic, 0): [number]}))


def one_pass(objects: Objects) -> None:
    now = datetime.now(UTC) + timedelta(hours=1)
    compact(Table(objects, DETECTIONS), now, Policy(fanout=100, grace=timedelta(0)))


def checkpoints(objects: Objects) -> list[str]:
    return [key for info in objects.list(CHECKPOINTS) if is_checkpoint(key := info.key)]


def store(topic: str) -> MemoryObjects:
    objects = MemoryObjects()
    fill(objects, topic)
    one_pass(objects)
    return objects


def test_a_copy_under_a_great_number_is_not_the_newest() -> None:
    objects = store("alerts")
    [own] = checkpoints(objects)
    fill(objects, "alerts", 4, first=8)
    one_pass(objects)
    new = newest_checkpoint(objects, DETECTIONS).key
    assert new > own
    pinned = PINNED + own.rpartition("-")[2]
    objects.put(pinned, objects.get(own))
    with pytest.raises(Damaged, match="holds the checkpoint of number 1"):
        verify(objects, objects.head(pinned))
    assert newest_checkpoint(objects, DETECTIONS).key == new
    assert any(pinned in found.wrong for found in rebuild(objects, write=False))
    for _ in range(2):  # nothing is due, and the copy goes
        one_pass(objects)
        assert newest_checkpoint(objects, DETECTIONS).key == new
    assert pinned not in checkpoints(objects)


def test_the_number_after_a_foreign_one_is_the_next_one() -> None:
    objects = store("alerts")
    objects.put(f"{PINNED}{'0' * 32}.parquet", b"garbage")
    fill(objects, "alerts", 4, first=8)
    one_pass(objects)
    assert newest_checkpoint(objects, DETECTIONS).key.startswith(
        f"{CHECKPOINTS}detections/00000000"
    )


def test_a_checkpoint_of_another_bucket_makes_no_lost_runs() -> None:
    objects, other = store("alerts"), store("others")
    fill(other, "others", 4, first=8)
    one_pass(other)
    foreign = newest_checkpoint(other, DETECTIONS).key
    assert foreign > newest_checkpoint(objects, DETECTIONS).key
    objects.put(foreign, other.get(foreign))
    table = Table(objects, DETECTIONS)
    assert table.quarantined() == {}
    assert len(table.coverage()) == 8
    assert any(foreign in found.wrong for found in rebuild(objects, write=False))
    one_pass(objects)
    assert foreign not in checkpoints(objects)
    assert Table(objects, DETECTIONS).quarantined() == {}


def test_two_first_checkpoints_written_at_once_both_count() -> None:
    objects = MemoryObjects()
    fill(objects, "alerts", 2)
    parts = Table(objects, DETECTIONS).listed()
    checkpoint_files._new_bucket(objects, DETECTIONS, parts)
    first = checkpoint_files.put_checkpoint(objects, DETECTIONS, parts)
    checkpoint_files._new_bucket(objects, DETECTIONS, parts)
    second = checkpoint_files.put_checkpoint(objects, DETECTIONS, parts)
    assert [info.key for info in checkpoint_files.listed_checkpoints(objects, DETECTIONS)[0]] == [
        first,
        second,
    ]
    objects.delete(second)
    assert newest_checkpoint(objects, DETECTIONS).key == first
    for info in objects.list(CHECKPOINTS):
        verify(objects, info)


class Empty(Forwarding):
    """Listings of tables show nothing, or leave out what they show first."""

    def __init__(self, inner: Objects, shown: int) -> None:
        super().__init__(inner)
        self.shown = shown

    def list(self, prefix: str, after: str = ""):
        found = [*super().list(prefix, after)]
        return iter(found if not prefix.startswith("tables/") else found[: self.shown])


@pytest.mark.parametrize("shown", [0, 1])
def test_a_listing_that_leaves_out_runs_of_a_small_table_is_told(shown: int) -> None:
    """A new process knows from the checkpoint that the listing is not whole."""
    objects = MemoryObjects()
    for offset in range(3):  # the last one after the checkpoint
        fill_site(objects, sample_cutouts(), sample_points(), Coverage.of({("ztf", 0): [offset]}))
        for spec in (CUTOUTS, DETECTIONS) if offset < 2 else ():
            Table(objects, spec).keep_checkpoint(timedelta(0))
    for read in serving(make_app(Settings(), Empty(objects, shown))):
        for path in ("/v1/objects/ZTF21abiuvdk/lightcurve", "/v1/alerts/1/cutouts/science"):
            got = read(path)
            assert "Stampede-Incomplete" in got.headers, (path, got.status, got.data)
    for read in serving(make_app(Settings(), objects)):
        got = read("/v1/objects/ZTF21abiuvdk/lightcurve")
        assert "Stampede-Incomplete" not in got.headers
