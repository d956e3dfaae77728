"""Retention deletes by a clock that two machines agree on, and a few nights at a time."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import ClockWrong, NotFound
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.pack_name import night_of
from stampede.telemetry import reconcile_metrics
from tests.support.store.two_sites import TODAY, environment, put_all, put_pack, second_ceph, sites
from tests.support.store.watched_objects import Watched

__all__ = ["second_ceph", "sites"]  # fixtures

WRONG_CLOCK = "import time\nright = time.time\ntime.time = lambda: right() + {seconds}\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Two sites that are directories, with packs of six nights; four are past their retention."""
    made = Settings(
        store=f"file://{tmp_path}/first",
        replica=f"file://{tmp_path}/second",
        grace_seconds=0,
        cutout_days=30,
        reconcile="retention",
    )
    fill(made)
    return made


def fill(settings: Settings) -> None:
    # If a test runs past midnight, the same nights are due: the night of 30 days would be one more.
    for number, days in enumerate((34, 33, 32, 31, 29, 0)):
        for site in (open_objects(settings), open_replica(settings)):
            pack = put_all(site, range(2 * number, 2 * number + 2), TODAY - days)
        Thumbnails(settings).make(pack.key)


def nights(objects: Objects, prefix: str = "packs") -> list[int]:
    """The nights that have packs, in days before today."""
    return sorted({TODAY - int(info.key.split("/")[1]) for info in objects.list(f"{prefix}/")})


def nights_with_packs(objects: Objects) -> list[int]:
    """As `nights`, without objects that are no packs."""
    found = {night_of(info.key) for info in objects.list("packs/")}
    return sorted(TODAY - night for night in found if night is not None)


def reconcile(settings: Settings, directory: Path, seconds: float) -> tuple[int, str]:
    """`stampede reconcile` on a machine whose clock is that many seconds ahead."""
    (directory / "wrong").mkdir(exist_ok=True)
    (directory / "wrong" / "sitecustomize.py").write_text(WRONG_CLOCK.format(seconds=seconds))
    env = os.environ | {f"STAMPEDE_{k}": v for k, v in environment(settings).items()}
    env["PYTHONPATH"] = os.pathsep.join([str(directory / "wrong"), *sys.path])
    command = [sys.executable, "-m", "stampede", "reconcile", "--data", str(directory / "none")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.integration
@pytest.mark.parametrize("years", [-3, 3])
def test_a_wrong_clock_deletes_nothing(settings: Settings, tmp_path: Path, years: int) -> None:
    status, text = reconcile(settings, tmp_path, years * 365.25 * 86400)
    assert status != 0
    assert "nothing is deleted by its age" in text
    assert "clocks differ" in text
    for site in (open_objects(settings), open_replica(settings)):
        assert nights(site) == [0, 29, 31, 32, 33, 34]
    status, text = reconcile(settings, tmp_path, 300)
    assert "clocks differ" not in text
    assert nights(open_objects(settings)) == [0, 29, 31]


@pytest.mark.integration
def test_a_wrong_clock_deletes_nothing_from_ceph(sites: Settings, tmp_path: Path) -> None:
    chosen = {"cutout_days": 30, "reconcile": "retention"}
    made = Settings(**(sites.model_dump(exclude_unset=True) | chosen))
    fill(made)
    status, text = reconcile(made, tmp_path, 3 * 365.25 * 86400)
    assert status != 0
    assert "clocks differ" in text
    assert nights(open_objects(made)) == [0, 29, 31, 32, 33, 34]
    reconcile(made, tmp_path, 0)
    assert nights(open_objects(made)) == nights(open_replica(made)) == [0, 29, 31]


def test_the_function_refuses_and_shows_the_difference(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> float:
        [family] = reconcile_metrics.CLOCK_DIFFERENCE.collect()
        return {sample.labels["site"]: sample.value for sample in family.samples}["store"]

    ahead = time.time() + 86400
    monkeypatch.setattr("stampede.runtime.clock.time.time", lambda: ahead)
    with pytest.raises(ClockWrong, match="by the clock of the store"):
        Reconciler(settings).run()
    assert -86401 < shown() < -86300
    monkeypatch.undo()
    Reconciler(settings).run()
    assert abs(shown()) < 60


def test_a_pass_deletes_a_few_nights_the_earliest_first(settings: Settings) -> None:
    few = settings.model_copy(update={"retention_nights": 1})
    objects, second = open_objects(settings), open_replica(settings)
    for left in ([0, 29, 31, 32, 33], [0, 29, 31, 32], [0, 29, 31], [0, 29]):
        found = []
        Reconciler(few, found.append).run()
        assert nights(objects) == nights(second) == nights(objects, "thumbnails") == left
        # A pass that left some says so.
        assert any(not each.repaired for each in found) == (31 in left)
    assert Reconciler(few).run() == {}


def test_a_dry_run_names_all_nights(settings: Settings) -> None:
    few = settings.model_copy(update={"retention_nights": 1})
    assert Reconciler(few).run(repair=False) == {"expired": 12}
    assert nights(open_objects(settings)) == [0, 29, 31, 32, 33, 34]


def test_only_nights_that_are_due_are_listed_and_nothing_else_ends_the_search(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(open_objects(settings))
    monkeypatch.setattr("stampede.handlers.reconcile.reconciler.open_objects", lambda _: watched)
    for key in (f"packs/{TODAY - 40}/note", "packs/-5x/note", "packs/!", "packs/1/2/3"):
        watched.inner.put(key, b"no pack")
    few = settings.model_copy(update={"retention_nights": 1})
    Reconciler(few).run()
    assert nights_with_packs(watched.inner) == [0, 29, 31, 32, 33]
    listed = {key for what, key in watched.calls if what == "list"}
    days = {TODAY - int(key.split("/")[1]) for key in listed if key.count("/") == 2}
    # One more, to say that there is one.
    assert days - {TODAY - 1} == {40, 34, 33}


def test_a_night_before_mjd_0_is_the_earliest(settings: Settings) -> None:
    objects = open_objects(settings)
    old = put_pack(objects, range(100, 102), -700_000)
    older = put_pack(objects, range(102, 104), -1_000_000)
    few = settings.model_copy(update={"retention_nights": 1})
    for key in (older.key, old.key):
        assert objects.head(key)
        Reconciler(few).run()
        with pytest.raises(NotFound):
            objects.head(key)
    assert nights(objects) == [0, 29, 31, 32, 33, 34]


def test_retention_comes_before_what_may_take_long(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the order in STAMPEDE_RECONCILE is: a pass that is aborted has deleted already."""

    class Aborted(BaseException):
        pass

    def abort(*_: object) -> None:
        raise Aborted

    monkeypatch.setattr("stampede.handlers.reconcile.repair.Repairer.repair", abort)
    with pytest.raises(Aborted):
        Reconciler(settings.model_copy(update={"reconcile": "restore,retention"})).run()
    assert nights(open_objects(settings)) == [0, 29, 31]
