"""Merged packs of images, as every part of the system meets them: the same bytes as before."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest

from stampede.alerts.columns import CUTOUT, KINDS
from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.events.cloudevents.s3_events import stored_event
from stampede.handlers.compact import compact_tables
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.replay.messages import Replayed
from stampede.handlers.replay.night import Night
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.lookup.lookup import Lookup
from stampede.runtime.clock import now_mjd
from stampede.store.compaction.image_merge import ImageMerger
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.packs.pack import read_content, write_pack
from stampede.store.packs.pack_name import Merged, PackName
from stampede.store.runs.schema import CUTOUT_PACKS, CUTOUTS, THUMBNAILS
from stampede.store.tables.table import Table
from tests.handlers.merges.passes import faults, run_merges
from tests.support.store.rows import cutout, table
from tests.support.store.stored_packets import store, ztf_with_images

NIGHT = int(now_mjd()) - 40
BATCHES, ALERTS = 4, 5
IDS = range(1, BATCHES * ALERTS + 1)
SOON = 1e-7  # days


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        store=f"file://{tmp_path}/store", spool=tmp_path, orphan_days=SOON, merge_days=0
    )


def fill(settings: Settings) -> None:
    """Batches of one night, and their thumbnails."""
    for batch in range(BATCHES):
        numbers = IDS[batch * ALERTS : (batch + 1) * ALERTS]
        messages = [ztf_with_images(n, NIGHT + 0.2 + n / 1e4) for n in numbers]
        store(settings, messages, batch * ALERTS)
    draw(settings)


def draw(settings: Settings) -> None:
    for key in packs(settings, "packs"):
        Thumbnails(settings).make(key)


def merge(settings: Settings, passes: int = 2) -> None:
    for _ in range(passes):
        time.sleep(0.02)  # longer than `SOON`
        run_merges(settings)


def packs(settings: Settings, kind: str) -> list[str]:
    return [info.key for info in open_objects(settings).list(f"{kind}/")]


def images(settings: Settings) -> list[bytes]:
    """The files and the thumbnail of each alert, as `read` gives them."""
    lookup = Lookup(open_objects(settings), settings)
    try:
        found = []
        for alert_id in IDS:
            rows = {row.kind: row for row in lookup.alert(alert_id, None)}
            found += [lookup.images.fits(rows[kind]) for kind in KINDS]
        return found
    finally:
        lookup.close()


def test_readers_and_scrub_find_what_was_stored(settings: Settings) -> None:
    fill(settings)
    before = images(settings)
    for _ in range(3):
        merge(settings, 1)
        assert images(settings) == before
        assert faults(settings) == []
    for kind in ("packs", "thumbnails"):
        [key] = packs(settings, kind)
        name = PackName.parse(key)
        assert name == PackName(kind, NIGHT, name.digest, frozenset({1}), Merged(1, NIGHT, ""))


def test_a_night_is_replayed_from_merged_packs(settings: Settings) -> None:
    fill(settings)
    merge(settings)
    sent = [ztf_with_images(n, NIGHT + 0.2 + n / 1e4) for n in IDS]
    replayed = list(Night(settings, NIGHT))
    assert all(isinstance(each, Replayed) for each in replayed)
    assert sorted(each.message for each in replayed) == sorted(sent)


def test_a_merged_pack_that_lost_its_run_is_indexed_again(settings: Settings) -> None:
    fill(settings)
    before = images(settings)
    merge(settings)
    objects = open_objects(settings)
    for info in list(objects.list("tables/cutouts/")):
        objects.delete(info.key)
    Reconciler(settings.model_copy(update={"grace_seconds": 0.0})).run(everything=True)
    assert images(settings) == before


def test_a_merged_pack_claims_the_offsets_of_packs_that_it_took_whole(
    tmp_path: Path,
) -> None:
    objects = MemoryObjects()
    stored = Table(objects, CUTOUTS, threads=1)
    packs = []
    for first in (1, 2, 3):
        # The survey sent one image of each alert; alert 2 comes twice.
        rows = [
            cutout(alert, kind, b"image" if kind == "science" else None, NIGHT + 0.5)
            for alert in (10 * first, 2)
            for kind in KINDS
        ]
        covered = Coverage.of({("alerts", 0): [first]})
        pack = write_pack(table(rows, CUTOUT), covered)
        objects.put(pack.key, pack.data)
        stored.append(pack.locations, covered)
        packs.append(pack.key)
    stored.refresh()
    won = stored.lookup([2]).filter(pc.is_valid(stored.lookup([2])["pack"]))["pack"].to_pylist()
    merger = ImageMerger(objects, CUTOUT_PACKS, stored, timedelta())
    assert merger.merge([objects.head(key) for key in packs]).merged == 3
    merger.close()
    [merged] = [info for info in objects.list("packs/") if "merged1" in info.key]
    [winner] = won
    expected = Coverage.of({("alerts", 0): [1 + packs.index(winner)]})
    assert read_content(objects.get(merged.key), key=merged.key).coverage == expected


def test_a_pack_goes_a_while_after_it_was_merged(settings: Settings) -> None:
    fill(settings)
    before = packs(settings, "packs")
    merge(settings.model_copy(update={"orphan_days": 7}), 3)
    now = packs(settings, "packs")
    assert set(before) < set(now)
    assert len(now) == len(before) + 1
    merge(settings, 1)
    assert len(packs(settings, "packs")) == 1


def test_compact_merges_images(settings: Settings) -> None:
    fill(settings)
    compact_tables(settings)
    assert sum("merged1" in key for key in packs(settings, "packs")) == 1


@pytest.mark.parametrize(
    "off",
    [
        {"merge_seconds": 0},
        {"orphan_days": 0},
        {"cutout_days": 29},
        {"merge_days": 60},  # the night is later
        {"merge_days": 0.01},  # the packs are younger
    ],
)
def test_it_can_be_switched_off(settings: Settings, off: dict[str, float]) -> None:
    fill(settings)
    before = packs(settings, "packs") + packs(settings, "thumbnails")
    merge(settings.model_copy(update=off))
    assert packs(settings, "packs") + packs(settings, "thumbnails") == before


def test_a_merge_that_stopped_before_its_run_is_made_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(settings)
    before = images(settings)
    with monkeypatch.context() as patched:
        patched.setattr(Table, "append", stop)
        with pytest.raises(StoreDown):
            merge(settings, 1)
    assert len(packs(settings, "packs")) == BATCHES + 1
    merge(settings, 4)
    assert len(packs(settings, "packs")) == 1
    assert images(settings) == before
    assert faults(settings) == []


def stop(*_: object) -> None:
    raise StoreDown("killed")


def test_a_damaged_pack_is_left_out(settings: Settings) -> None:
    fill(settings)
    objects = open_objects(settings)
    bad = packs(settings, "packs")[0]
    data = bytearray(objects.get(bad))
    data[len(data) // 2] ^= 1
    objects.put(bad, bytes(data))
    merge(settings)
    left = packs(settings, "packs")
    assert bad in left
    assert len(left) == 2


def test_late_alerts_are_merged_once_they_are_an_eighth(settings: Settings) -> None:
    fill(settings)
    merge(settings)
    numbers = iter(range(1000, 2000))

    def late() -> None:
        n = next(numbers)
        store(settings, [ztf_with_images(n, NIGHT + 0.9)], n)
        merge(settings)

    late()
    assert len(packs(settings, "packs")) == 2  # a twentieth
    late()
    assert len(packs(settings, "packs")) == 2  # the late ones, with each other
    late()
    assert len(packs(settings, "packs")) == 1  # three are an eighth


def test_a_thumbnail_that_was_drawn_again_still_wins(settings: Settings) -> None:
    fill(settings)
    first = packs(settings, "packs")[0]
    Thumbnails(settings).make(first, again=True)
    table = Table(open_objects(settings), THUMBNAILS)
    before = redrawn(table)
    assert sorted(set(before)) == [0, 1]
    merge(settings)
    assert len(packs(settings, "thumbnails")) == 1
    assert redrawn(table) == before
    assert faults(settings) == []


def redrawn(table: Table) -> list[int]:
    table.refresh()
    return [row or 0 for row in table.lookup(list(IDS)).sort_by("alert_id")["redrawn"].to_pylist()]


def test_a_merged_pack_gives_no_new_thumbnails(settings: Settings) -> None:
    fill(settings)
    merge(settings)
    [merged] = packs(settings, "packs")
    before = packs(settings, "thumbnails")
    event = stored_event("stampede", "us-east-1", merged)
    asyncio.run(Thumbnails(settings).handle(event))
    assert packs(settings, "thumbnails") == before
    for info in list(open_objects(settings).list("tables/thumbnails/")):
        open_objects(settings).delete(info.key)
    asyncio.run(Thumbnails(settings).handle(event))
    assert len(packs(settings, "thumbnails")) == 2


def test_the_second_site_follows(settings: Settings, tmp_path: Path) -> None:
    replica = {"replica": f"file://{tmp_path}/second", "grace_seconds": 0.0}
    settings = settings.model_copy(update=replica)
    fill(settings)
    before = images(settings)
    later = settings.model_copy(update={"orphan_days": 7})
    Reconciler(settings).run(everything=True)
    for _ in range(3):
        merge(later, 1)
        Reconciler(later).run(everything=True)  # it has a day before what was merged is deleted
        merge(settings, 1)
        time.sleep(0.02)
        Reconciler(settings).run(everything=True)
    second = settings.model_copy(update={"store": settings.replica, "replica": ""})
    for kind in ("packs", "thumbnails"):
        assert packs(second, kind) == packs(settings, kind)
        assert len(packs(second, kind)) == 1
    assert images(second) == before
