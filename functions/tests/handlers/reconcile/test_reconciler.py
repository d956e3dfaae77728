"""reconcile: finds and repairs everything without any notification."""

import itertools
import os
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import BrokerDown, NotFound, SetupError, StoreDown
from stampede.handlers.reconcile.findings import Finding
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.reconcile.repair import quarantined
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects, open_replica
from stampede.store.replication.copy import Copier
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, THUMBNAILS
from stampede.store.tables import checkpoint_files
from stampede.store.tables.checkpoint import CHECKPOINTS, is_checkpoint
from stampede.store.tables.table import Table
from stampede.telemetry import reconcile_metrics
from stampede_local.ports import free_port
from tests.support.events.receiver import Receiver
from tests.support.store.two_sites import (
    TODAY,
    all_same,
    environment,
    put_all,
    put_pack,
    second_ceph,
    sites,
)
from tests.support.store.watched_objects import Failing, Forwarding, Watched

__all__ = ["second_ceph", "sites"]  # fixtures


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Two sites that are directories; no object is too young to be checked."""
    return Settings(
        store=f"file://{tmp_path}/first", replica=f"file://{tmp_path}/second", grace_seconds=0
    )


def keys(objects: Objects, prefix: str = "") -> list[str]:
    return [info.key for info in objects.list(prefix)]


def one_pass(settings: Settings, *steps: str, **options: bool) -> tuple[Counter, list[Finding]]:
    found: list[Finding] = []
    chosen = settings.model_copy(update={"reconcile": ",".join(steps)})
    return Reconciler(chosen, found.append).run(**options), found


@pytest.mark.parametrize("kafka", [True, False])
def test_a_pack_without_its_run_gets_exactly_that_run(settings: Settings, kafka: bool) -> None:
    objects = open_objects(settings)
    put_all(objects, range(10))
    pack = put_pack(objects, range(10, 20), kafka=kafka)
    count, found = one_pass(settings, "packs")
    assert (count, found) == ({"unindexed": 1}, [Finding("unindexed", pack.key, True)])
    repaired = keys(objects, "tables/cutouts/")
    places = Table(objects, CUTOUTS).lookup(range(10, 20))
    assert places["pack"].unique().to_pylist() == [pack.key]
    coverage = Coverage.of({("alerts", 0): range(10, 20)} if kafka else {})
    Table(objects, CUTOUTS).append(pack.locations, coverage)
    assert keys(objects, "tables/cutouts/") == repaired
    assert one_pass(settings, "packs") == ({}, [])


def test_alerts_resent_into_another_pack_are_not_indexed_twice(settings: Settings) -> None:
    objects = open_objects(settings)
    put_pack(objects, range(5))
    put_all(objects, range(10))
    assert one_pass(settings, "packs")[0] == {}


class Slow(Forwarding):
    """A site that takes a while to store an object."""

    def put(self, *arguments, **options):
        time.sleep(0.05)
        return super().put(*arguments, **options)


def test_a_long_pass_ends_in_time_and_the_next_one_goes_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second site that was away: many objects to copy, at 50 ms each."""
    objects, second = open_objects(settings), open_replica(settings)
    monkeypatch.setattr(
        "stampede.handlers.reconcile.reconciler.open_replica", lambda _: Slow(second)
    )
    monkeypatch.setattr("stampede.handlers.replicate.open_replica", lambda _: Slow(second))
    for number in range(6):
        put_all(objects, range(3 * number, 3 * number + 3))
    put_pack(objects, range(900, 903))
    reconciler = Reconciler(settings.model_copy(update={"copies": 1}))
    found: list[Counter[str]] = []
    while not found or found[-1]["not-replicated"]:
        found.append(reconciler.run(seconds=0.4))
        assert len(found) < 99
    assert len(found) > 2
    assert found[0]["unindexed"] == 1
    assert sum(count["not-replicated"] for count in found) == len(keys(objects, "packs/")) + len(
        keys(objects, "tables/")
    )
    assert all_same(settings)


@pytest.mark.parametrize("site", [0, 1])
def test_a_site_whose_key_only_reads_does_not_stop_the_sweep(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, site: int
) -> None:
    """A site that pulls has a key of the first site that may not list uploads."""

    class ReadOnly(Forwarding):
        def forget_uploads(self, before: datetime) -> int:
            raise StoreDown("the first site answered AccessDenied")

    objects = open_objects(settings)
    for number in range(4):
        put_all(objects, range(3 * number, 3 * number + 3))
    one_pass(settings, "replica")
    compact(Table(objects, DETECTIONS), datetime.now(UTC), Policy(fanout=4, grace=timedelta()))
    one_pass(settings, "replica")
    name = ("open_objects", "open_replica")[site]
    inner = (open_objects, open_replica)[site](settings)
    monkeypatch.setattr(f"stampede.handlers.reconcile.reconciler.{name}", lambda _: ReadOnly(inner))
    assert one_pass(settings, "leftovers")[0] == {"superseded": 4}


def test_a_pack_of_a_batch_in_progress_is_not_touched(settings: Settings) -> None:
    put_pack(open_objects(settings), range(5))
    patient = settings.model_copy(update={"grace_seconds": 60})
    assert one_pass(patient, "packs", "thumbnails")[0] == {}


def test_old_packs_are_checked_only_with_everything(settings: Settings, tmp_path: Path) -> None:
    pack = put_pack(open_objects(settings), range(5))
    then = time.time() - 3 * 86400
    os.utime(tmp_path / "first" / pack.key, (then, then))
    assert one_pass(settings, "packs")[0] == {}
    assert one_pass(settings, "packs", everything=True)[0] == {"unindexed": 1}


def test_packs_in_order_are_checked_once(settings: Settings, monkeypatch) -> None:
    objects = open_objects(settings)
    put_all(objects, range(5))
    reconciler = Reconciler(settings.model_copy(update={"reconcile": "packs"}))
    assert reconciler.run() == {}
    monkeypatch.setattr(
        "stampede.store.integrity.unindexed_packs.read_coverage", lambda *_: pytest.fail("again")
    )
    assert reconciler.run() == {}


def test_an_object_that_is_no_pack_is_named_and_stops_nothing(settings: Settings) -> None:
    objects = open_objects(settings)
    bad = f"packs/{TODAY}/{'0' * 32}.parquet"
    objects.put(bad, b"not Parquet at all")
    pack, found = put_pack(objects, range(5)), list[Finding]()
    reconciler = Reconciler(settings.model_copy(update={"reconcile": "packs"}), found.append)
    reconciler.run()
    assert set(found) == {Finding("damaged", bad, False), Finding("unindexed", pack.key, True)}
    assert reconciler.run() == {"damaged": 1}  # until a person removes it


def test_a_damaged_pack_is_not_indexed_and_stops_nothing(settings: Settings) -> None:
    objects = open_objects(settings)
    packs = [put_pack(objects, range(3 * n, 3 * n + 3)) for n in range(4)]
    bad = bytearray(packs[0].data)
    bad[50] ^= 1
    objects.put(packs[0].key, bytes(bad))
    _, found = one_pass(settings, "packs")
    assert Counter(each.kind for each in found) == {"damaged": 1, "unindexed": 3}
    assert Finding("damaged", packs[0].key, False) in found
    assert len(Table(objects, CUTOUTS).lookup(range(12))) == 27


@pytest.mark.parametrize("gets", [0, 1], ids=["at all", "but its footer"])
def test_a_pack_that_the_store_does_not_give_stops_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, gets: int
) -> None:
    objects = open_objects(settings)
    packs = [put_pack(objects, range(3 * n, 3 * n + 3)) for n in range(4)]
    bad, number = packs[0].key, itertools.count()
    failing = Failing(objects, StoreDown, lambda key, _: key == bad and next(number) >= gets)
    monkeypatch.setattr("stampede.handlers.reconcile.reconciler.open_objects", lambda _: failing)
    _, found = one_pass(settings.model_copy(update={"replica": ""}), "packs")
    assert Counter(each.kind for each in found) == {"damaged": 1, "unindexed": 3}
    assert Finding("damaged", bad, False) in found
    assert len(Table(objects, CUTOUTS).lookup(range(12))) == 27


def test_the_event_of_a_pack_without_thumbnails_is_sent_again(settings: Settings) -> None:
    objects = open_objects(settings)
    done, pack = put_all(objects, range(3)), put_all(objects, range(3, 6))
    Thumbnails(settings).make(done.key)
    with Receiver() as broker:
        to = settings.model_copy(update={"sink": broker.url})
        assert one_pass(to, "thumbnails")[1] == [Finding("without-thumbnails", pack.key, True)]
        [event] = broker.accepted
        assert event.headers["ce-type"] == "com.amazonaws.s3.ObjectCreated:Put"
        assert event.headers["ce-subject"] == pack.key
        Thumbnails(settings).make(event.headers["ce-subject"])
        assert one_pass(to, "thumbnails")[0] == {}
        assert len(Table(objects, THUMBNAILS).lookup(range(6))) == 6
        assert len(broker.requests) == 1


def test_it_identifies_itself_to_a_broker_that_requires_it(
    settings: Settings, tmp_path: Path
) -> None:
    put_all(open_objects(settings), range(3))
    (token := tmp_path / "token").write_text("mine\n")
    with Receiver() as broker:
        one_pass(
            settings.model_copy(update={"sink": broker.url, "sink_token": token}), "thumbnails"
        )
        assert [each.headers["authorization"] for each in broker.accepted] == ["Bearer mine"]


def test_a_broker_that_refuses_one_event_gets_the_others(settings: Settings) -> None:
    objects = open_objects(settings)
    packs = [put_all(objects, range(2 * n, 2 * n + 2)) for n in range(9)]
    bad = {packs[0].key, packs[4].key}

    def answer(event, times: int):
        return 503 if event.headers["ce-subject"] in bad else 204, b"", {}

    with Receiver(answer) as broker:
        found: list[Finding] = []
        to = settings.model_copy(update={"sink": broker.url, "reconcile": "thumbnails"})
        with pytest.raises(BrokerDown, match="refused 2 events"):
            Reconciler(to, found.append).run()
        assert len(broker.accepted) == 7
        assert {each.key for each in found if not each.repaired} == bad
        bad |= {pack.key for pack in packs}
        broker.requests.clear()
        with pytest.raises(BrokerDown):
            Reconciler(to).run()
        assert len({event.headers["ce-subject"] for event in broker.requests}) == 5


def test_with_the_broker_down_the_other_steps_run(settings: Settings) -> None:
    put_all(open_objects(settings), range(3))
    to = settings.model_copy(update={"sink": f"http://127.0.0.1:{free_port()}"})
    with pytest.raises(BrokerDown):
        one_pass(to, "thumbnails", "replica")
    assert all_same_names(settings)


def all_same_names(settings: Settings) -> bool:
    return keys(open_objects(settings)) == keys(open_replica(settings)) != []


def test_retention_is_the_same_at_both_sites(settings: Settings) -> None:
    objects, second = open_objects(settings), open_replica(settings)
    old, young = put_all(objects, range(3), TODAY - 31), put_all(objects, range(3, 6), TODAY - 29)
    for pack in (old, young):
        Thumbnails(settings).make(pack.key)
    one_pass(settings, "replica")
    assert all_same_names(settings)
    limited = settings.model_copy(update={"cutout_days": 30})
    count, found = one_pass(limited, "packs", "thumbnails", "retention", "replica")
    assert count == {"expired": 4}
    for site in (objects, second):
        assert keys(site, "packs/") == [young.key]
        assert len(keys(site, "thumbnails/")) == 1
        # The index still knows the deleted packs, and accounts for them.
        assert len(Table(site, CUTOUTS).lookup(range(6))) == 18
        with pytest.raises(NotFound):
            site.head(old.key)
    assert {each.repaired for each in found} == {True}
    assert one_pass(limited, "packs", "thumbnails", "retention", "replica")[0] == {}


def test_a_night_without_a_date_and_foreign_objects_do_not_end_retention(
    settings: Settings,
) -> None:
    """An alert with jd=0, alone in its pack, was stored before dates were bounded."""
    objects = open_objects(settings)
    dateless, old = put_all(objects, [7], -2400000), put_all(objects, [8], TODAY - 31)
    young = put_all(objects, [9], TODAY - 29)
    assert dateless.key.startswith("packs/-2399")
    objects.put("packs/-notes.txt", b"foreign")
    limited = settings.model_copy(update={"cutout_days": 30, "replica": ""})
    count, _ = one_pass(limited, "retention")
    assert count == {"expired": 2}
    assert set(keys(objects, "packs/")) == {"packs/-notes.txt", young.key}
    assert old.key not in keys(objects, "packs/")


def merged_at_first(settings: Settings) -> tuple[Objects, Objects]:
    """Both sites: four runs were copied, then the first site merged and deleted its own."""
    objects, second = open_objects(settings), open_replica(settings)
    for number in range(4):
        put_all(objects, range(3 * number, 3 * number + 3))
    one_pass(settings, "replica")
    compact(Table(objects, CUTOUTS), datetime.now(UTC), Policy(fanout=4))
    compact(Table(objects, CUTOUTS), datetime.now(UTC), Policy(fanout=4, grace=timedelta()))
    return objects, second


def test_merged_runs_are_deleted_at_the_second_site(settings: Settings) -> None:
    objects, second = merged_at_first(settings)
    assert one_pass(settings, "replica", "leftovers")[0] == {"not-replicated": 1}
    assert one_pass(settings, "replica", "leftovers")[0] == {"superseded": 4}
    assert keys(second, "tables/cutouts/") == keys(objects, "tables/cutouts/")


@pytest.mark.parametrize(("grace_seconds", "shown"), [(0, 3), (300, 0)])
def test_what_replicate_may_still_copy_is_not_behind(
    settings: Settings, grace_seconds: int, shown: int
) -> None:
    """Objects that were just stored are copied, but the metric of the alert leaves them out."""
    put_all(open_objects(settings), range(3))
    young = settings.model_copy(update={"grace_seconds": grace_seconds})
    assert one_pass(young, "replica")[0] == {"not-replicated": 3}
    [sample] = [
        sample.value
        for sample in reconcile_metrics.RECONCILE_FOUND.collect()[0].samples
        if sample.labels["what"] == "not-replicated"
    ]
    assert sample == shown


def test_a_merged_run_that_cannot_be_read_is_deleted_at_the_second_site(settings: Settings) -> None:
    objects, second = merged_at_first(settings)
    second.put(keys(second, "tables/cutouts/")[0], b"garbage " * 100)
    found = one_pass(settings, "replica", "leftovers")[0] + one_pass(settings, "leftovers")[0]
    assert found == {"not-replicated": 1, "superseded": 4}
    assert keys(second, "tables/cutouts/") == keys(objects, "tables/cutouts/")


def test_what_a_checkpoint_of_the_second_site_gets_wrong_is_reported(settings: Settings) -> None:
    """The merged run there cannot stand for its inputs, so they stay; somebody must hear of it."""
    _, second = merged_at_first(settings)
    one_pass(settings, "replica")
    parts = Table(second, CUTOUTS).listed()
    [merged] = [part for part in parts if part.inputs]
    wrong = [replace(part, rows=part.rows + 1) if part is merged else part for part in parts]
    checkpoint_files.put_checkpoint(second, CUTOUTS, wrong)
    assert one_pass(settings, "leftovers")[1] == [Finding("damaged", merged.key, False)]
    assert len(Table(second, CUTOUTS).listed()) == 5


def test_the_second_site_has_checkpoints_of_its_own(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They name no run as lost that was merged, and deleted there because of that."""
    monkeypatch.setattr(checkpoint_files, "MOST_NEW_PARTS", 3)
    objects, second = merged_at_first(settings)
    one_pass(settings, "checkpoints", repair=False)
    assert keys(second, CHECKPOINTS) == []
    one_pass(settings, "checkpoints")
    [key] = filter(is_checkpoint, keys(second, CHECKPOINTS + "cutouts/"))
    watched = Watched(second)
    assert len(Table(watched, CUTOUTS).coverage()) == 12
    assert [call for call in watched.calls if call[0] == "get"] == [("get", key)]
    for _ in range(2):
        one_pass(settings, "replica", "leftovers", "checkpoints")
        assert quarantined(second) == {}
    assert keys(second, "tables/cutouts/") == keys(objects, "tables/cutouts/")
    assert len(Table(second, CUTOUTS).coverage()) == 12


def test_a_run_deleted_at_the_second_site_is_missed_and_restored(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_files, "MOST_NEW_PARTS", 1)
    put_all(open_objects(settings), range(3))
    one_pass(settings, "replica", "checkpoints")
    second = open_replica(settings)
    [run] = keys(second, "tables/cutouts/")
    second.delete(run)
    assert list(quarantined(second)) == [run]
    assert Finding("lost", run, True) in one_pass(settings, "restore")[1]
    assert quarantined(second) == {}


@pytest.mark.parametrize(
    "damage", ["page", *(pytest.param(each, marks=pytest.mark.long) for each in ("cut", "footer"))]
)
def test_a_damaged_copy_goes_once_the_first_site_has_merged_it_twice(
    settings: Settings, damage: str
) -> None:
    """No run at the second site lists it as an input, and no site has a good copy."""
    objects, second = open_objects(settings), open_replica(settings)
    at_once = timedelta()
    for number in range(16):
        put_all(objects, range(3 * number, 3 * number + 3))
        if number == 3:
            one_pass(settings, "replica")
        if number % 4 == 3:
            compact(Table(objects, CUTOUTS), datetime.now(UTC), Policy(fanout=4, grace=at_once))
            compact(Table(objects, CUTOUTS), datetime.now(UTC), Policy(fanout=4, grace=at_once))
    [bad, *_] = keys(second, "tables/cutouts/")
    data = bytearray(second.get(bad))
    data[{"cut": 40, "page": 40, "footer": len(data) - 40}[damage]] ^= 8
    second.put(bad, bytes(data[:-60] if damage == "cut" else data))
    assert [key.split("/")[2][:4] for key in keys(objects, "tables/cutouts/")] == ["0002"]
    one_pass(settings, "restore", "replica", "leftovers")
    one_pass(settings, "restore", "replica", "leftovers")
    assert keys(second, "tables/cutouts/") == keys(objects, "tables/cutouts/")
    assert one_pass(settings, "restore", "replica", "leftovers")[0] == {}


def test_a_damaged_copy_stays_while_the_first_site_lacks_offsets(settings: Settings) -> None:
    objects, second = open_objects(settings), open_replica(settings)
    for number in range(4):
        put_all(objects, range(3 * number, 3 * number + 3))
    one_pass(settings, "replica")
    by_low = sorted(Table(objects, CUTOUTS).runs(), key=lambda run: str(run.coverage))
    lost = by_low[1].key
    second.put(lost, b"garbage " * 100)
    objects.delete(lost)
    _, found = one_pass(settings, "restore", "replica", "leftovers")
    assert [(each.kind, each.repaired) for each in found] == [("damaged", False)]
    assert lost in keys(second, "tables/cutouts/")


def test_a_dry_run_finds_all_and_changes_nothing(settings: Settings, tmp_path: Path) -> None:
    objects = open_objects(settings)
    for number in range(4):
        put_all(objects, range(3 * number, 3 * number + 3))
    one_pass(settings, "replica")
    compact(Table(objects, CUTOUTS), datetime.now(UTC), Policy(fanout=4))
    one_pass(settings, "replica")
    put_pack(objects, range(100, 103))
    put_pack(objects, range(200, 203), TODAY - 50)
    limited = settings.model_copy(update={"cutout_days": 30, "sink": "http://127.0.0.1:1"})
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    count, found = one_pass(
        limited, "packs", "thumbnails", "replica", "retention", "leftovers", repair=False
    )
    assert count == {
        "unindexed": 1,
        "without-thumbnails": 5,
        "not-replicated": 1,
        "expired": 1,
        "superseded": 4,
    }
    assert not any(each.repaired for each in found)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_an_unknown_step_is_an_error(settings: Settings) -> None:
    with pytest.raises(SetupError, match="no everything; there are notifications, store-check"):
        one_pass(settings, "packs", "everything")


def ping(served) -> int:
    """The event of a PingSource."""
    headers = {
        "ce-specversion": "1.0",
        "ce-type": "dev.knative.sources.ping",
        "ce-source": "/apis/v1/namespaces/default/pingsources/reconcile",
        "ce-id": str(time.time_ns()),
    }
    return served.http.request("POST", served.url, body=b"{}", headers=headers).status


def test_without_notifications_everything_is_repaired(serve, sites: Settings) -> None:
    """On two real S3 endpoints: the process gets only the event of a timer."""
    objects, second = open_objects(sites), open_replica(sites)
    for number in range(3):
        put_all(objects, range(3 * number, 3 * number + 3))
    lost = put_pack(objects, range(9, 12))
    with Receiver() as broker:
        served = serve("reconcile", **environment(sites), GRACE_SECONDS=0, SINK=broker.url)
        assert ping(served) == 204
        assert len(broker.accepted) == 4
    assert all_same(sites)
    places = Table(second, CUTOUTS).lookup(range(12))
    assert len(places) == 36
    assert lost.key in places["pack"].to_pylist()
    shown = served.http.request("GET", f"{served.url}/metrics").data.decode()
    assert 'stampede_reconcile_found_objects{what="unindexed"} 1.0' in shown
    assert 'stampede_reconcile_repaired_objects_total{what="not-replicated"} 14.0' in shown


def test_with_the_second_site_down_the_first_is_repaired(serve, bucket: Settings) -> None:
    objects = open_objects(bucket)
    pack = put_pack(objects, range(3))
    down = f"http://127.0.0.1:{free_port()}/away"
    served = serve("reconcile", **environment(bucket), GRACE_SECONDS=0, REPLICA=down)
    assert ping(served) == 503
    assert Table(objects, CUTOUTS).lookup([0])["pack"].to_pylist()[0] == pack.key


def test_a_store_that_is_down_is_an_error(settings: Settings) -> None:
    nowhere = settings.model_copy(update={"store": f"http://127.0.0.1:{free_port()}/nowhere"})
    with pytest.raises(StoreDown):
        one_pass(nowhere, "packs")


def two_good_sites(settings: Settings) -> tuple[Objects, Objects]:
    objects, second = open_objects(settings), open_replica(settings)
    for number in range(4):
        put_all(objects, range(3 * number, 3 * number + 3))
    for _ in range(2):  # the second deletes the inputs
        compact(Table(objects, DETECTIONS), datetime.now(UTC), Policy(fanout=4, grace=timedelta()))
    one_pass(settings, "replica")
    return objects, second


@pytest.mark.parametrize("prefix", ["packs/", "tables/cutouts/", "tables/detections/0001"])
@pytest.mark.parametrize("damaged_at", [0, 1])
@pytest.mark.parametrize("how", ["flip", "cut", "delete"])
def test_each_site_is_restored_from_the_other(
    settings: Settings, prefix: str, damaged_at: int, how: str
) -> None:
    sites = two_good_sites(settings)
    site = sites[damaged_at]
    key = keys(site, prefix)[0]
    good = site.get(key)
    if how == "delete":
        site.delete(key)
    else:
        site.put(key, good[:-9] if how == "cut" else good[:60] + b"!!" + good[62:])
    _, found = one_pass(settings, "restore", "replica", repair=False)
    # The etags of directories are no digests and do not show a flip: `audit --deep` reads.
    if how != "flip":
        assert {(each.key, each.repaired) for each in found} == {(key, False)}
        one_pass(settings, "restore", "replica")
        assert [one.get(key) for one in sites] == [good, good]
        assert one_pass(settings, "restore", "replica")[0] == {}


def test_packs_are_restored_before_runs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else readers would see rows that point to a pack that is not there."""
    objects, order = open_objects(settings), list[str]()
    for number in range(6):
        put_all(objects, range(3 * number, 3 * number + 3))
    one_pass(settings, "replica")
    packs, runs = keys(objects, "packs/"), keys(objects, "tables/cutouts/")
    for key in packs:
        objects.delete(key)
    objects.delete(runs[0])
    copy = Copier.copy

    def slowly(self: Copier, key: str, replace: bool = False) -> object:
        time.sleep(0.1 if key in packs else 0.0)
        done = copy(self, key, replace)
        order.append(key)
        return done

    monkeypatch.setattr(Copier, "copy", slowly)
    one_pass(settings, "restore")
    assert set(order[: len(packs)]) == set(packs)
    assert runs[0] in order
    assert keys(objects, "packs/") == packs


def test_what_was_merged_or_expired_is_not_restored(settings: Settings) -> None:
    objects, second = two_good_sites(settings)
    pack = put_pack(objects, range(200, 203), TODAY - 50)
    one_pass(settings, "replica")
    objects.delete(pack.key)
    kept = settings.model_copy(update={"cutout_days": 30})
    assert one_pass(kept, "restore")[0] == {}
    assert pack.key in keys(second)
    assert one_pass(settings, "restore")[0] == {"lost": 1}
