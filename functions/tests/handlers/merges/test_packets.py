"""Merged packets, as every part of the system meets them: the same bytes as before."""

import time
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.handlers.compact import compact_tables
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.replay.messages import Replayed
from stampede.handlers.replay.night import Night
from stampede.lookup.lookup import Lookup
from stampede.runtime.clock import now_mjd
from stampede.store.compaction.packet_plan import WINDOW, window_of
from stampede.store.open import open_objects
from tests.handlers.merges.passes import faults, run_merges
from tests.support.store.stored_packets import store, ztf_with_images

FIRST = window_of(int(now_mjd()) - 2 * WINDOW).start
NIGHTS = FIRST, FIRST + 3, FIRST + 29
SOON = 1e-7  # days


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        store=f"file://{tmp_path}/store", spool=tmp_path, orphan_days=SOON, merge_days=0
    )


def fill(settings: Settings) -> dict[int, list[bytes]]:
    """Messages by night; each night in three batches."""
    nights: dict[int, list[bytes]] = {}
    offset = 0
    for night in NIGHTS:
        for batch in range(3):
            numbers = range(offset + 1, offset + 5)
            messages = [ztf_with_images(n, night + 0.2 + batch / 10 + n / 1e4) for n in numbers]
            store(settings, messages, offset)
            nights.setdefault(night, []).extend(messages)
            offset += 4
    return nights


def merge(settings: Settings, passes: int = 6) -> None:
    for _ in range(passes):
        time.sleep(0.02)  # longer than `SOON`
        run_merges(settings)


def packs(settings: Settings) -> list[str]:
    return [info.key for info in open_objects(settings).list("packets/")]


def given(settings: Settings, alert_ids: range) -> list[bytes]:
    """The messages of alerts, as `read` gives them."""
    lookup = Lookup(open_objects(settings), settings)
    try:
        found = []
        for alert_id in alert_ids:
            packet = lookup.packet(alert_id)
            found.append(lookup.packets.message(packet, lookup.alert(alert_id, None)))
        return found
    finally:
        lookup.close()


def test_readers_replay_and_scrub_find_what_was_stored(settings: Settings) -> None:
    nights = fill(settings)
    messages = [message for some in nights.values() for message in some]
    ids = range(1, len(messages) + 1)
    assert len(packs(settings)) == 9
    for passes in (1, 1, 4):
        merge(settings, passes)
        assert given(settings, ids) == messages
        for night, sent in nights.items():
            got = list(Night(settings, night))
            assert all(isinstance(each, Replayed) for each in got)
            assert sorted(each.message for each in got) == sorted(sent)
        assert faults(settings) == []
    [merged] = packs(settings)
    assert merged.startswith(f"packets/{FIRST + 29}/merged2-{FIRST}-all-")
    with pytest.raises(SetupError, match="no packets"):
        Night(settings, FIRST + 5)


def test_compact_merges_packets(settings: Settings) -> None:
    fill(settings)
    compact_tables(settings)
    assert sum("merged1" in key for key in packs(settings)) == 3


@pytest.mark.parametrize(
    "off",
    [
        {"merge_seconds": 0},
        {"orphan_days": 0},
        {"merge_days": 4 * WINDOW},  # the nights are later
        {"merge_days": 0.01},  # the packs are younger
    ],
)
def test_it_can_be_switched_off(settings: Settings, off: dict[str, float]) -> None:
    fill(settings)
    before = packs(settings)
    merge(settings.model_copy(update=off))
    assert packs(settings) == before


def test_retention_bounds_how_many_nights_are_merged(settings: Settings) -> None:
    """What is merged with later nights goes with the last of them."""
    fill(settings)
    merge(settings.model_copy(update={"packet_days": 100}))
    assert [key.split("-")[0] for key in packs(settings)] == [
        f"packets/{FIRST + 3}/merged2",
        f"packets/{FIRST + 29}/merged1",
    ]
    merge(settings.model_copy(update={"packet_days": 1}))
    assert len(packs(settings)) == 2  # past their retention: they are left alone


def test_the_second_site_follows(settings: Settings, tmp_path: Path) -> None:
    replica = {"replica": f"file://{tmp_path}/second", "grace_seconds": 0.0}
    settings = settings.model_copy(update=replica)
    messages = [message for some in fill(settings).values() for message in some]
    later = settings.model_copy(update={"orphan_days": 7})
    Reconciler(settings).run(everything=True)
    for _ in range(3):
        merge(later, 1)
        Reconciler(later).run(everything=True)  # it has a day before what was merged is deleted
        merge(settings, 1)
        time.sleep(0.02)
        Reconciler(settings).run(everything=True)
    second = settings.model_copy(update={"store": settings.replica, "replica": ""})
    assert packs(second) == packs(settings)
    assert len(packs(second)) == 1
    assert given(second, range(1, len(messages) + 1)) == messages


def test_a_pack_that_lost_its_run_is_indexed_again(settings: Settings) -> None:
    messages = [message for some in fill(settings).values() for message in some]
    merge(settings)
    objects = open_objects(settings)
    for info in list(objects.list("tables/packets/")):
        objects.delete(info.key)
    Reconciler(settings.model_copy(update={"grace_seconds": 0.0})).run(everything=True)
    assert given(settings, range(1, len(messages) + 1)) == messages
