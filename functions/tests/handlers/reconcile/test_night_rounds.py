"""No pass of `reconcile` lists the whole store, and a few passes together look at all of it."""

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import Gauge

from stampede.config.settings import Settings
from stampede.errors import BrokerDown, StoreDown
from stampede.handlers.reconcile.findings import Finding
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.lookup import histories_summary
from stampede.runtime.clock import mjd
from stampede.store import store_checks
from stampede.store.integrity import reconcile_state
from stampede.store.integrity.reconcile_state import RoundState
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Folder, ObjectInfo, Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.runs.schema import CUTOUTS
from stampede.store.tables.table import Table
from stampede.telemetry import reconcile_metrics
from stampede_bench.instruments.counting_store import CountingStore
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
from tests.support.store.watched_objects import Forwarding

pytestmark = pytest.mark.long

__all__ = ["second_ceph", "sites"]  # fixtures

STEPS = "restore-packs-thumbnails-replica"
NIGHTS = [TODAY - days for days in (100, 90, 80, 70, 60, 50)]
PASSES = 3  # that look at six nights, two in each


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with packs of six old nights and of today. Tests change copies."""
    directory = tmp_path_factory.mktemp("filled") / "store"
    for number, night in enumerate([*NIGHTS, TODAY]):
        put_all(DirectoryObjects(directory), range(2 * number, 2 * number + 2), night)
    return directory


@pytest.fixture
def settings(filled: Path, tmp_path: Path) -> Settings:
    """Two sites that are equal; a pass looks at two of the old nights."""
    for site in ("first", "second"):
        shutil.copytree(filled, tmp_path / site)
    return Settings(
        store=f"file://{tmp_path}/first",
        replica=f"file://{tmp_path}/second",
        grace_seconds=0,
        reconcile_keys=4,
    )


def a_pass(settings: Settings, **options: bool) -> list[Finding]:
    """One pass in a new process, as far as memory goes; without what needs thumbnails."""
    found: list[Finding] = []
    Reconciler(settings, found.append).run(**options)
    return [each for each in found if each.kind != "without-thumbnails"]


def pack_of(objects: Objects, night: int) -> str:
    [info] = objects.list(f"packs/{night}/")
    return info.key


def states(objects: Objects) -> list[str]:
    """The keys of what rounds keep, not of what histories know, nor of checks."""
    others = (histories_summary.FOLDER, store_checks.FOLDER)
    found = [info.key for info in objects.list(reconcile_state.PREFIX)]
    return [key for key in found if not key.startswith(others)]


def state_of(objects: Objects) -> RoundState:
    found = reconcile_state.load(objects, STEPS)
    assert found
    return found


def value(metric: Gauge) -> float:
    [sample] = next(iter(metric.collect())).samples
    return sample.value


# -- what a pass costs


def counted(nights: int, packs: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Counter, float]:
    """The requests of a pass over two sites with so many nights, and what it says it listed."""
    time_of_day = datetime.now(UTC) - timedelta(days=100)
    stores = [CountingStore(MemoryObjects(lambda: time_of_day)) for _ in range(2)]
    for night in range(nights):
        for number in range(packs):
            for store in stores:
                store.put(f"packs/{TODAY - 10 - night}/{number:032}.parquet", b"x")
    time_of_day = datetime.now(UTC)
    for module in ("reconcile.reconciler", "replicate"):
        for name, store in zip(("open_objects", "open_replica"), stores, strict=True):
            monkeypatch.setattr(f"stampede.handlers.{module}.{name}", lambda _, s=store: s)
    chosen = Settings(
        store="memory:", replica="memory:second", cutout_days=20_000, reconcile_keys=4 * packs
    )
    Reconciler(chosen).run()  # counts what there is
    for store in stores:
        store.clear()
    Reconciler(chosen).run()
    return stores[0].requests + stores[1].requests, value(reconcile_metrics.RECONCILE_LISTED)


def test_what_a_pass_lists_does_not_grow_with_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    few, few_keys = counted(20, 30, monkeypatch)
    many, many_keys = counted(400, 30, monkeypatch)
    assert many["list"] <= few["list"] + 4
    assert many["get"] <= few["get"]
    assert many_keys == few_keys + 380  # folders; 11,400 packs at each site are 22,800 keys


# -- what is found, and how soon


def unindexed(first: Objects, second: Objects) -> str:
    return put_pack(first, range(100, 102), NIGHTS[4]).key


def lost_at_first(first: Objects, second: Objects) -> str:
    first.delete(key := pack_of(first, NIGHTS[4]))
    return key


def lost_with_its_night(first: Objects, second: Objects) -> str:
    key = lost_at_first(first, second)
    assert f"packs/{NIGHTS[4]}/" not in first.list_folder("packs/").folders
    return key


def lost_at_second(first: Objects, second: Objects) -> str:
    second.delete(key := pack_of(second, NIGHTS[4]))
    return key


def damaged(first: Objects, second: Objects) -> str:
    key = pack_of(first, NIGHTS[4])
    first.put(key, first.get(key)[:-1])  # the etag of a file is its size, not a digest
    return key


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (unindexed, "unindexed"),
        (lost_at_first, "lost"),
        (lost_with_its_night, "lost"),
        (lost_at_second, "not-replicated"),
        (damaged, "damaged"),
    ],
)
def test_a_fault_of_an_old_night_is_found_in_the_round(
    settings: Settings, harm: Callable[[Objects, Objects], str], kind: str
) -> None:
    first, second = open_objects(settings), open_replica(settings)
    a_pass(settings, everything=True)
    key = harm(first, second)
    assert not [each for each in a_pass(settings) if each.key == key]
    found = [each for _ in range(PASSES - 1) for each in a_pass(settings) if each.key == key]
    assert Finding(kind, key, True) in found
    assert first.get(key) == second.get(key)
    later = [a_pass(settings) for _ in range(PASSES)]
    assert later == [[]] * PASSES


def test_what_is_outside_of_nights_and_of_today_is_looked_at_in_each_pass(
    settings: Settings,
) -> None:
    first, second = open_objects(settings), open_replica(settings)
    a_pass(settings)
    for number in range(3):
        today = put_pack(first, range(200 + 2 * number, 202 + 2 * number)).key
        first.put(other := f"other/{number}", b"x")
        first.put(stray := f"packs/note-{number}", b"x")
        kinds = {each.key: each.kind for each in a_pass(settings)}
        assert kinds[today] in ("unindexed", "not-replicated")
        assert second.get(today) == first.get(today)
        assert kinds[other] == kinds[stray] == "not-replicated"


def test_a_pack_that_waited_long_for_its_turn_is_checked(
    settings: Settings, tmp_path: Path
) -> None:
    """It was stored after its night was last looked at, but more than `reconcile_days` ago."""
    first, now = open_objects(settings), datetime.now(UTC)
    key = unindexed(first, open_replica(settings))
    then = time.time() - 5 * 86400
    os.utime(tmp_path / "first" / key, (then, then))
    assert not any(each.kind == "unindexed" for _ in range(PASSES) for each in a_pass(settings))
    ago = now - timedelta(days=6)
    reconcile_state.save(first, STEPS, RoundState(ago, ago))
    found = [each for _ in range(PASSES) for each in a_pass(settings)]
    assert Finding("unindexed", key, True) in found


# -- the state


def test_the_state_goes_on_in_a_new_process_and_stays_at_its_site(settings: Settings) -> None:
    first, seen = open_objects(settings), []
    for _ in range(2 * PASSES + 1):
        a_pass(settings)
        assert len(states(first)) == 1
        seen.append(state_of(first).after)
    assert seen[0] == f"packs/{NIGHTS[1]}/"
    assert seen[1] == f"packs/{NIGHTS[3]}/"
    assert seen[2] == ""  # the end of a round
    assert seen[3:] == [*seen[:3], seen[0]]
    assert not states(open_replica(settings))
    state = state_of(first)
    assert state.complete < state.began


@pytest.mark.parametrize("content", [b"", b"{}", b"not JSON", None])
def test_after_a_damaged_state_a_new_round_begins(
    settings: Settings, content: bytes | None
) -> None:
    first = open_objects(settings)
    a_pass(settings)
    a_pass(settings)
    [key] = states(first)
    first.put(key, content if content is not None else first.get(key)[:-1] + b" }")
    a_pass(settings)
    assert state_of(first).after == f"packs/{NIGHTS[1]}/"
    assert states(first) != [key]


def test_a_small_store_is_looked_at_whole_and_has_no_state(settings: Settings) -> None:
    roomy = settings.model_copy(update={"reconcile_keys": 14})
    first, second = open_objects(settings), open_replica(settings)
    a_pass(roomy)
    for harm in (lost_at_first, unindexed):
        key = harm(first, second)
        assert key in {each.key for each in a_pass(roomy)}
        assert not states(first)


def test_everything_looks_at_all_nights_and_a_dry_run_does_not_go_on(settings: Settings) -> None:
    first, second = open_objects(settings), open_replica(settings)
    a_pass(settings)
    before = states(first)
    key = lost_at_first(first, second)
    for _ in range(2):
        assert a_pass(settings, repair=False) == []
    assert a_pass(settings, repair=False, everything=True) == [Finding("lost", key, False)]
    assert a_pass(settings, everything=True) == [Finding("lost", key, True)]
    assert states(first) == before


@pytest.mark.integration
def test_the_command_says_whether_it_looked_at_all_nights(settings: Settings) -> None:
    def command(*options: str) -> str:
        env = os.environ | {f"STAMPEDE_{k}": v for k, v in environment(settings).items()}
        env |= {"STAMPEDE_RECONCILE": "restore,replica", "PYTHONPATH": os.pathsep.join(sys.path)}
        line = [sys.executable, "-m", "stampede", "reconcile", "--data", "/none", *options]
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert command() == "nothing is left to repair in these nights; --all looks at all of them"
    assert command("--all") == "nothing is left to repair"


class Down(Forwarding):
    """A site that does not answer while `down`."""

    down = False

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        self._check()
        return super().list(prefix, after)

    def list_folder(self, folder: str) -> Folder:
        self._check()
        return super().list_folder(folder)

    def head(self, key: str) -> ObjectInfo:
        self._check()
        return super().head(key)

    def _check(self) -> None:
        if self.down:
            raise StoreDown("the second site is away")


def test_while_the_second_site_is_away_the_same_nights_are_looked_at(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = open_objects(settings), Down(open_replica(settings))
    for module in ("reconcile.reconciler", "replicate"):
        monkeypatch.setattr(f"stampede.handlers.{module}.open_replica", lambda _: second)
    a_pass(settings)
    before = states(first)
    pack = put_pack(first, range(300, 302), NIGHTS[2]).key
    second.down = True
    found: list[Finding] = []
    for _ in range(2):
        with pytest.raises(StoreDown, match="away"):
            Reconciler(settings, found.append).run()
    assert Finding("unindexed", pack, True) in found  # that step needs the first site alone
    assert states(first) == before
    second.down = False
    assert pack in {each.key for each in a_pass(settings)}
    assert second.get(pack) == first.get(pack)
    assert states(first) != before


def test_who_only_pulls_writes_nothing_at_the_first_site(settings: Settings) -> None:
    pull = settings.model_copy(update={"reconcile": "replica,leftovers"})
    first, second = open_objects(settings), open_replica(settings)
    before = {info.key for info in first.list("")}
    key = lost_at_second(first, second)
    found = [each for _ in range(PASSES) for each in a_pass(pull)]
    assert found == [Finding("not-replicated", key, True)]
    assert {info.key for info in first.list("")} == before
    assert len(states(second)) == 1


@pytest.mark.parametrize("responses", [True, False])
def test_thumbnails_that_do_not_come_hold_up_no_other_step(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, responses: bool
) -> None:
    """More packs lack thumbnails than events are sent, or the Broker does not accept them."""
    monkeypatch.setattr("stampede.handlers.reconcile.reconciler.MOST_RESENT", 1)
    first, second = open_objects(settings), open_replica(settings)
    fault = lost_at_first(first, second)
    with Receiver(lambda event, times: (204 if responses else 503, b"", {})) as broker:
        to = settings.model_copy(update={"sink": broker.url})
        found: list[Finding] = []
        for _ in range(PASSES):
            with nullcontext() if responses else pytest.raises(BrokerDown):
                Reconciler(to, found.append).run()
    assert state_of(first).after == ""
    assert fault in {each.key for each in found if each.repaired}


def test_what_one_round_did_not_send_the_next_round_finds(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pack of an old night, stored before the last whole round, but after the one before."""
    alone = settings.model_copy(update={"replica": "", "reconcile": "thumbnails"})
    first, now = open_objects(alone), datetime.now(UTC)
    key = pack_of(first, NIGHTS[0])
    for info in first.list("packs/"):
        days = 5 if info.key == key else 50
        then = time.time() - days * 86400
        os.utime(tmp_path / "first" / info.key, (then, then))
    earlier, last = now - timedelta(days=6), now - timedelta(days=3)
    with Receiver() as broker:
        to = alone.model_copy(update={"sink": broker.url})
        for before, sent in ((earlier, [key]), (last, [])):
            broker.requests.clear()
            reconcile_state.save(first, "thumbnails", RoundState(last, last, before=before))
            Reconciler(to).run()
            assert [event.headers["ce-subject"] for event in broker.requests] == sent
    state = reconcile_state.load(first, "thumbnails")
    assert state
    assert state.before == last


def test_a_pass_that_is_aborted_is_made_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Aborted(BaseException):
        pass

    def abort(*_: object) -> None:
        raise Aborted

    first = open_objects(settings)
    a_pass(settings)
    before = states(first)
    monkeypatch.setattr(Reconciler, "_delete_leftovers", abort)
    with pytest.raises(Aborted):
        Reconciler(settings).run()
    assert states(first) == before


@pytest.mark.integration
def test_rounds_over_two_cephs(sites: Settings) -> None:
    chosen = {"grace_seconds": 0, "reconcile_keys": 2, "reconcile": "restore,packs,replica"}
    settings = Settings(**(sites.model_dump(exclude_unset=True) | chosen))
    first, second = open_objects(settings), open_replica(settings)
    for number, night in enumerate([*NIGHTS, TODAY]):
        put_all(first, range(2 * number, 2 * number + 2), night)
    Reconciler(settings).run(everything=True)
    assert all_same(settings)
    lost, damaged = pack_of(first, NIGHTS[1]), pack_of(second, NIGHTS[4])
    first.delete(lost)
    second.put(damaged, b"x" + second.get(damaged)[1:])
    alone = put_pack(first, range(100, 102), NIGHTS[5]).key
    found = [a_pass(settings) for _ in range(len(NIGHTS) + 1)]
    kinds = {each.key: each.kind for of_pass in found for each in of_pass}
    assert (kinds[lost], kinds[damaged], alone in kinds) == ("lost", "damaged", True)
    assert (
        max(len({each.key for each in of_pass} & {lost, damaged, alone}) for of_pass in found) == 1
    )
    for key in states(first):
        first.delete(key)
    assert all_same(settings)


# -- what operators see


def test_the_age_of_the_last_whole_round_is_shown(settings: Settings) -> None:
    first, now = open_objects(settings), datetime.now(UTC)
    ago = [now - timedelta(days=days) for days in (3, 7)]
    reconcile_state.save(first, STEPS, RoundState(ago[0], ago[1]))
    a_pass(settings)
    assert abs(value(reconcile_metrics.RECONCILE_ROUND_AGE) - 7 * 86400) < 60
    reconcile_state.save(first, STEPS, RoundState(ago[0], ago[1], after=f"packs/{NIGHTS[3]}/"))
    a_pass(settings)  # the round ends; it began three days ago
    assert abs(value(reconcile_metrics.RECONCILE_ROUND_AGE) - 3 * 86400) < 60
    roomy = settings.model_copy(update={"reconcile_keys": 1000, "reconcile": "packs"})
    a_pass(roomy)
    assert value(reconcile_metrics.RECONCILE_ROUND_AGE) == 0


def test_nights_of_the_last_days_do_not_wait(settings: Settings) -> None:
    """Whatever the time of day is: packs of this and of the last two nights."""
    first = open_objects(settings)
    night = int(mjd(datetime.now(UTC))) - 2
    a_pass(settings)
    keys = {put_pack(first, range(400, 402), night).key, put_pack(first, range(402, 404)).key}
    assert keys <= {each.key for each in a_pass(settings) if each.kind == "unindexed"}
    assert len(Table(first, CUTOUTS).lookup(range(400, 404))) == 12
