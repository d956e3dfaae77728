"""scrub: bounded passes read everything, repair damage, and go on where the last one ended."""

import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.handlers.compact import compact_tables
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.replicate import make_replica
from stampede.handlers.scrub import scrubber as scrub
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.handlers.scrub.handler import scrub_sites
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.store.integrity import scrub_state
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.checkpoint import CHECKPOINTS
from stampede.store.tables.table import Table
from stampede.telemetry import scrub_metrics
from tests.handlers.reconcile.test_reconciler import ping
from tests.support.store.two_sites import TODAY, environment, put_all, put_pack, second_ceph, sites
from tests.support.store.watched_objects import BeforeGet, Failing, Watched

pytestmark = pytest.mark.long

__all__ = ["second_ceph", "sites"]  # fixtures


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as `fill` leaves it. Tests change copies."""
    directory = tmp_path_factory.mktemp("filled") / "store"
    fill(Settings(store=f"file://{directory}", grace_seconds=0, fanout=4))
    return directory


@pytest.fixture
def settings(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A store whose passes read four objects each."""
    monkeypatch.setattr(scrub, "GROUP", 4)
    shutil.copytree(filled, tmp_path / "first")
    return Settings(store=f"file://{tmp_path}/first", grace_seconds=0, fanout=4, scrub_seconds=1e-9)


@pytest.fixture
def both(settings: Settings, tmp_path: Path) -> Settings:
    """The same at two sites."""
    made = settings.model_copy(update={"replica": f"file://{tmp_path}/second"})
    Reconciler(made.model_copy(update={"reconcile": "replica"})).run()
    return made


def fill(settings: Settings) -> None:
    """Six packs with thumbnails, and runs of two levels; no checkpoints."""
    objects = open_objects(settings)
    for number in range(6):
        pack = put_all(objects, range(4 * number, 4 * number + 4))
        Thumbnails(settings).make(pack.key)
        if number == 3:
            compact_tables(settings.model_copy(update={"merge_seconds": 0}))  # no state of merges
    for info in [*objects.list(CHECKPOINTS)]:
        objects.delete(info.key)


def keys(objects: Objects, prefix: str = "") -> list[str]:
    return [info.key for info in objects.list(prefix) if not info.key.startswith("scrub/")]


def value(metric, site: str = "store") -> float:
    """Of this site in this process; 0 if there is none yet."""
    [family] = metric.collect()
    found = [each for each in family.samples if not each.name.endswith("_created")]
    return sum(each.value for each in found if each.labels["site"] == site)


def state(settings: Settings, site: str = "store") -> scrub_state.ScrubState:
    found = scrub_state.load(open_objects(settings), site)
    assert found is not None
    return found


def a_round(settings: Settings) -> int:
    """Passes until the round has ended at every site; how many."""
    names = ("store", "replica") if settings.replica else ("store",)
    for number in range(1, 50):
        scrub_sites(settings)
        if all(state(settings, site).done for site in names):
            return number
    raise AssertionError("the round does not end")


def test_passes_read_each_object_once_and_then_wait(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(open_objects(settings))
    monkeypatch.setattr("stampede.handlers.scrub.handler.open_objects", lambda _: watched)
    packs = keys(watched.inner, "packs/")
    before = value(scrub_metrics.SCRUBBED_OBJECTS)
    everything = keys(watched.inner)
    watched.calls.clear()
    assert a_round(settings) == -(-(len(everything) + 1) // 4)
    read = [key for what, key in watched.calls if what == "get" and key in packs]
    assert sorted(read) == sorted(packs)
    states = len(list(watched.inner.list("scrub/")))
    assert states == 1
    read_now = value(scrub_metrics.SCRUBBED_OBJECTS) - before
    assert len(everything) <= read_now <= len(everything) + 1  # the state lies among them
    for _ in range(2):
        scrub_sites(settings)
    assert value(scrub_metrics.SCRUBBED_OBJECTS) - before == read_now
    assert value(scrub_metrics.SCRUB_DAMAGED) == 0


def test_a_pass_lists_only_nights_that_its_rows_name(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = open_objects(settings)
    for number in range(20):  # nights to which no row points
        objects.put(f"packs/{TODAY - 100 - number}/{number:032}.parquet", b"not read in this pass")
    lost, now = keys(objects, "packs/")[-1], objects.now()
    objects.delete(lost)
    scrub_state.save(objects, "store", scrub_state.ScrubState(now, now, after=lost))
    watched = Watched(objects)
    monkeypatch.setattr("stampede.handlers.scrub.handler.open_objects", lambda _: watched)
    for _ in range(10):
        scrub_sites(settings)
    assert lost in dict(state(settings).left)
    listed = {key for what, key in watched.calls if what == "list"}
    assert not any(f"packs/{TODAY - 100 - number}/" in listed for number in range(20))
    assert "packs/" not in listed


def test_the_next_round_begins_after_the_interval(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monthly = settings.model_copy(update={"scrub_days": 30})
    a_round(monthly)
    first, real = state(monthly), DirectoryObjects.now
    ahead = timedelta()
    monkeypatch.setattr(DirectoryObjects, "now", lambda self: real(self) + ahead)
    ahead = timedelta(days=29)
    scrub_sites(monthly)
    assert state(monthly).began == first.began
    assert value(scrub_metrics.SCRUB_ROUND_AGE) == pytest.approx(29 * 86400, abs=300)
    [sample] = next(iter(scrub_metrics.SCRUB_INTERVAL.collect())).samples
    assert sample.value == 30 * 86400
    ahead = timedelta(days=30, seconds=5)
    scrub_sites(monthly)
    assert not state(monthly).done
    assert value(scrub_metrics.SCRUB_ROUND_AGE) == pytest.approx(30 * 86400, abs=300)
    a_round(monthly)
    scrub_sites(monthly)
    assert value(scrub_metrics.SCRUB_ROUND_AGE) < 300
    # A clock that was years ahead does not stop the rounds.
    ahead = timedelta()
    scrub_sites(monthly)
    assert not state(monthly).done


def test_a_round_that_would_take_too_long_has_longer_passes(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last round read tells how long this one takes."""
    given: list[float] = []
    read_on, real = scrub.Scrub.read_on, DirectoryObjects.now

    def noted(self: scrub.Scrub, after: str, deadline: float) -> tuple[scrub.Totals, str | None]:
        given.append(deadline - time.monotonic())
        return read_on(self, after, min(deadline, time.monotonic()))

    monkeypatch.setattr(scrub.Scrub, "read_on", noted)
    monthly = settings.model_copy(update={"scrub_days": 30, "scrub_seconds": 100})
    passes = a_round(monthly)
    assert given == [pytest.approx(100, abs=20)] * passes  # of the first round nothing is known
    first = state(monthly)
    assert first.size == first.read > 0
    days = 30.0
    monkeypatch.setattr(DirectoryObjects, "now", lambda self: real(self) + timedelta(days=days))
    given.clear()
    scrub_sites(monthly)
    days += 0.1
    scrub_sites(monthly)
    days += 30
    scrub_sites(monthly)
    assert given == [pytest.approx(seconds, abs=20) for seconds in (100, 100, 200)]
    assert 0 < state(monthly).read < state(monthly).size == first.size


@pytest.mark.parametrize("prefix", ["packs/", "tables/detections/0001", "tables/cutouts/0000"])
def test_damage_is_counted_until_it_is_gone(settings: Settings, prefix: str) -> None:
    objects = open_objects(settings)
    key = keys(objects, prefix)[-1]
    good = objects.get(key)
    objects.put(key, good[:60] + b"!!" + good[62:])
    a_round(settings)
    left = dict(state(settings).left)
    others = [why for other, why in left.items() if other != key]
    assert key in left
    # If the run is live, its pack is without rows as long.
    assert all("lacks alerts of this pack" in why for why in others)
    assert value(scrub_metrics.SCRUB_DAMAGED) == len(left) <= 2
    scrub_sites(settings)  # it reads no more, but looks at this one again
    assert value(scrub_metrics.SCRUB_DAMAGED) == len(left)
    objects.put(key, good)
    scrub_sites(settings)
    assert value(scrub_metrics.SCRUB_DAMAGED) == 0
    assert state(settings).left == ()


def test_a_lost_pack_is_found(settings: Settings) -> None:
    objects = open_objects(settings)
    key = keys(objects, "packs/")[2]
    good = objects.get(key)
    objects.delete(key)
    a_round(settings)
    assert state(settings).left == ((key, "lost: rows point to it"),)
    scrub_sites(settings)
    assert value(scrub_metrics.SCRUB_DAMAGED) == 1
    objects.put(key, good)
    scrub_sites(settings)
    assert value(scrub_metrics.SCRUB_DAMAGED) == 0


@pytest.mark.parametrize("damaged_at", [0, 1])
@pytest.mark.parametrize("how", ["flip", "delete"])
def test_each_site_is_mended_from_the_other(both: Settings, damaged_at: int, how: str) -> None:
    site = (open_objects(both), open_replica(both))[damaged_at]
    damaged = [keys(site, prefix)[0] for prefix in ("packs/", "thumbnails/")]
    damaged.append(Table(site, DETECTIONS).runs()[0].key)  # a merged run stands for its inputs
    if how == "delete":
        damaged = damaged[:2]
    good = {key: site.get(key) for key in damaged}
    for key, data in good.items():
        if how == "flip":
            site.put(key, data[:60] + b"!!" + data[62:])
        else:
            site.delete(key)
    name = ("store", "replica")[damaged_at]
    repaired = value(scrub_metrics.SCRUB_MENDED, name)
    a_round(both)
    assert {key: site.get(key) for key in damaged} == good
    assert value(scrub_metrics.SCRUB_MENDED, name) - repaired == len(damaged)
    assert value(scrub_metrics.SCRUB_DAMAGED, name) == 0


def serve_from(monkeypatch: pytest.MonkeyPatch, name: str, objects: Objects) -> None:
    """Let scrub and what repairs for it use a wrapped store."""
    for module in ("scrub.handler", "scrub.deep_audit", "thumbnails.handler"):
        target = f"stampede.handlers.{module}.{name}"
        monkeypatch.setattr(target, lambda _: objects, raising=module != "thumbnails.handler")


@pytest.mark.parametrize(
    "prefix",
    [
        "packs/",
        pytest.param("thumbnails/", marks=pytest.mark.long),
        "tables/detections/0001",
        pytest.param("tables/cutouts/0001", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("footer", [True, False])
def test_a_round_ends_though_an_object_cannot_be_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, prefix: str, footer: bool
) -> None:
    """A disk fails at one object, or at all but the end of it; the others are whole."""
    objects = open_objects(settings)
    info = next(objects.list(prefix))
    bad = Failing(objects, StoreDown, lambda key, at: key == info.key and (footer or at == 0))
    serve_from(monkeypatch, "open_objects", bad)
    a_round(settings)
    assert [key for key, _ in state(settings).left] == [info.key]
    assert value(scrub_metrics.SCRUB_DAMAGED) == 1
    serve_from(monkeypatch, "open_objects", objects)
    scrub_sites(settings)
    assert value(scrub_metrics.SCRUB_DAMAGED) == 0


@pytest.mark.long
def test_a_round_ends_though_two_runs_of_a_table_cannot_be_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = open_objects(settings)
    bad = keys(objects, "tables/cutouts/0000")[:2]
    assert len(bad) == 2
    failing = Failing(objects, StoreDown, lambda key, _: key in bad)
    serve_from(monkeypatch, "open_objects", failing)
    a_round(settings)
    assert {key for key, _ in state(settings).left} >= set(bad)
    serve_from(monkeypatch, "open_objects", objects)
    scrub_sites(settings)
    assert value(scrub_metrics.SCRUB_DAMAGED) == 0


def test_a_store_that_is_down_is_no_damage(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = open_objects(settings)
    down = Failing(objects, StoreDown, lambda key, at: key.startswith("packs/"))
    serve_from(monkeypatch, "open_objects", down)
    with pytest.raises(StoreDown):
        scrub_sites(settings)
    assert state(settings).left == ()
    assert state(settings).after == ""


def test_the_age_grows_though_no_pass_ever_ends(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, real = open_objects(settings), DirectoryObjects.now
    down = Failing(objects, StoreDown, lambda key, at: key.startswith("packs/"))
    serve_from(monkeypatch, "open_objects", down)
    for days in (0, 50):
        monkeypatch.setattr(
            DirectoryObjects, "now", lambda self, days=days: real(self) + timedelta(days=days)
        )
        with pytest.raises(StoreDown):
            scrub_sites(settings)
    assert value(scrub_metrics.SCRUB_ROUND_AGE) == pytest.approx(50 * 86400, abs=300)


@pytest.mark.parametrize("unreadable_at", [0, 1])
def test_what_cannot_be_read_is_replaced_and_the_next_too(
    both: Settings, monkeypatch: pytest.MonkeyPatch, unreadable_at: int
) -> None:
    """Writing an object again puts it elsewhere on the disk."""
    site = (open_objects(both), open_replica(both))[unreadable_at]
    bad, other, *_ = keys(site, "packs/")
    good = site.get(other)
    site.put(other, good[:60] + b"!!" + good[62:])
    written = next(site.list(bad)).modified
    failing = Failing(
        site, StoreDown, lambda key, at: key == bad and site.head(bad).modified == written
    )
    serve_from(monkeypatch, ("open_objects", "open_replica")[unreadable_at], failing)
    a_round(both)
    assert site.get(other) == good
    assert site.head(bad).modified > written
    assert state(both, ("store", "replica")[unreadable_at]).left == ()


def test_a_pass_counts_though_the_second_site_cannot_mend(
    both: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, second = open_objects(both), open_replica(both)
    key = keys(objects, "packs/")[0]
    good = objects.get(key)
    objects.put(key, good[:60] + b"!!" + good[62:])
    long = both.model_copy(update={"scrub_seconds": 60})
    serve_from(monkeypatch, "open_replica", Failing(second, StoreDown))
    with pytest.raises(StoreDown):
        scrub_sites(long)
    assert [left for left, _ in state(long).left] == [key]
    assert state(long).done
    assert value(scrub_metrics.SCRUB_DAMAGED) == 1
    serve_from(monkeypatch, "open_replica", second)
    scrub_sites(long)
    assert objects.get(key) == good
    assert state(long).left == ()


def test_packs_stored_during_a_pass_are_whole(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their runs are younger than the listing of the table; one has no run yet."""
    patient = settings.model_copy(update={"grace_seconds": 600, "scrub_seconds": 60})
    objects, read = open_objects(settings), list[str]()

    def store(key: str, start: int) -> None:
        read.append(key)
        if sum(each.startswith("packs/") for each in read) == 1:
            for number in range(100, 104):
                Thumbnails(settings).make(put_all(objects, range(number, number + 1)).key)
            before = set(keys(objects, "tables/thumbnails/"))
            Thumbnails(settings).make(put_pack(objects, range(4000, 4004)).key)
            [run] = set(keys(objects, "tables/thumbnails/")) - before
            objects.delete(run)

    serve_from(monkeypatch, "open_objects", BeforeGet(objects, store))
    before = value(scrub_metrics.SCRUB_FOUND)
    scrub_sites(patient)
    assert set(keys(objects, "thumbnails/")) <= set(read)
    assert value(scrub_metrics.SCRUB_FOUND) == before
    monkeypatch.undo()
    # A pack that is old enough must have its run.
    assert len(deep_audit(settings, ["store"]).faults) == 2


@pytest.mark.parametrize("broker_down_after", ["packs", "thumbnails"])
def test_what_is_copied_only_in_part_is_whole(both: Settings, broker_down_after: str) -> None:
    """A Broker goes down after the event of a pack: the next pass of `reconcile` copies its run."""
    objects, second = open_objects(both), open_replica(both)
    pack = put_all(objects, range(200, 204))
    Thumbnails(both).make(pack.key)
    for key in keys(objects, f"{broker_down_after}/"):
        second.put(key, objects.get(key))
    before = value(scrub_metrics.SCRUB_FOUND, "replica")
    a_round(both)
    assert value(scrub_metrics.SCRUB_FOUND, "replica") == before
    assert value(scrub_metrics.SCRUB_DAMAGED, "replica") == 0
    assert deep_audit(both, ["replica"]).faults  # who asks for an audit reads what the site lacks


def test_its_state_stays_at_the_first_site(both: Settings) -> None:
    a_round(both)
    objects = open_objects(both)
    states = [info.key for info in objects.list("scrub/")]
    assert len(states) == 2
    replica = make_replica(both)
    for key in states:
        assert not replica.copy(key).moved
    assert not list(replica.missing())
    replica.close()
    assert Reconciler(both.model_copy(update={"reconcile": "restore,replica"})).run() == {}
    assert not list(open_replica(both).list("scrub/"))


@pytest.mark.parametrize("how", ["flip", "garbage", "delete"])
def test_a_state_that_is_damaged_begins_a_new_round(settings: Settings, how: str) -> None:
    objects = open_objects(settings)
    scrub_sites(settings)
    scrub_sites(settings)
    [info] = objects.list("scrub/")
    data = objects.get(info.key)
    assert state(settings).after == keys(objects)[6]  # and the state itself
    if how == "delete":
        objects.delete(info.key)
    else:
        objects.put(info.key, data.replace(b"20", b"21", 1) if how == "flip" else b"garbage")
    scrub_sites(settings)
    assert state(settings).after == keys(objects)[3]
    assert len(list(objects.list("scrub/"))) == 1


def test_one_long_pass_is_a_whole_round(settings: Settings) -> None:
    assert a_round(settings.model_copy(update={"scrub_seconds": 60})) == 1


def test_a_timer_scrubs_two_ceph(serve, sites: Settings) -> None:
    """The function as a process, on two real S3 endpoints."""
    objects, second = open_objects(sites), open_replica(sites)
    for number in range(3):
        put_all(objects, range(3 * number, 3 * number + 3))
    Reconciler(sites.model_copy(update={"reconcile": "replica"})).run()
    [key, *_] = keys(second, "packs/")
    good = second.get(key)
    second.put(key, good[:-9])
    served = serve("scrub", **environment(sites), GRACE_SECONDS=0)
    begin = time.monotonic()
    assert ping(served) == 204
    assert time.monotonic() - begin < 60
    assert second.get(key) == good
    text = served.http.request("GET", f"{served.url}/metrics").data.decode()
    assert 'stampede_scrub_mended_objects_total{site="replica"} 1.0' in text
    assert 'stampede_scrub_damaged_objects{site="replica"} 0.0' in text
    assert 'stampede_scrub_passes_total{outcome="done"} 1.0' in text
    # Three packs, six runs and the state of the round.
    assert 'stampede_scrubbed_objects_total{site="store"} 10.0' in text
    assert state(sites, "replica").done
