"""Two sites from the command line: what the second lacks is named, repaired, and then proven."""

from pathlib import Path

import pytest

from stampede.settings import Settings
from stampede.store.open import open_objects, open_replica
from stampede.store.schema import DETECTIONS
from stampede.store.tables import Table
from tests.cli.test_cli import run
from tests.support.receiver import Receiver
from tests.support.two_sites import put_all, put_pack

# Whole processes: not for the quick loop.
pytestmark = pytest.mark.integration

__all__ = ["run"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=f"file://{tmp_path}/first", replica=f"file://{tmp_path}/second")


def environment(settings: Settings) -> dict[str, str]:
    return {"STAMPEDE_STORE": settings.store, "STAMPEDE_REPLICA": settings.replica}


def test_what_the_second_site_lacks_is_named_then_repaired(run, settings: Settings) -> None:
    env = environment(settings)
    objects = open_objects(settings)
    pack = put_all(objects, range(5))
    put_all(objects, range(5, 9))
    ended = run("audit", "--site", "replica", **env)
    assert ended.status == 1
    assert "missing from detections: alerts partition 0, offsets 0 to 8" in ended.out
    assert "not there yet: 2 of packs/" in ended.out
    assert pack.key in ended.out

    dry = run("reconcile", "--dry-run", **env)
    assert (dry.status, f"not-replicated: {pack.key} (not repaired)" in dry.out) == (1, True)
    assert list(open_replica(settings).list("")) == []

    done = run("reconcile", **env, STAMPEDE_RECONCILE="replica")
    assert (done.status, f"not-replicated: {pack.key}\n" in done.out) == (0, True)
    proven = run("audit", "--site", "replica", **env)
    assert proven.status == 0
    assert "nothing is missing" in proven.out
    assert "complete below" in proven.out


def test_up_to_where_the_second_site_is_complete(run, settings: Settings) -> None:
    env = environment(settings)
    objects = open_objects(settings)
    for number in range(3):
        put_all(objects, range(4 * number, 4 * number + 4))
    run("reconcile", **env, STAMPEDE_RECONCILE="replica")
    second = open_replica(settings)
    gone = Table(second, DETECTIONS).runs()[0]
    [(low, high)] = gone.coverage.intervals("alerts", 0)
    second.delete(gone.key)
    ended = run("audit", "--site", "replica", **env)
    assert ended.status == 1
    assert f"missing from detections: alerts partition 0, offsets {low} to {high - 1}" in ended.out
    assert f"tables/, 0.0 MB: {gone.key}" in ended.out
    line = next(line for line in ended.out.splitlines() if line.startswith("detections"))
    assert line.split()[-1] == str(low)


def test_without_the_first_site_the_second_proves_what_it_can(run, settings: Settings) -> None:
    env = environment(settings)
    put_all(open_objects(settings), range(5))
    run("reconcile", **env, STAMPEDE_RECONCILE="replica")
    away = env | {"STAMPEDE_STORE": "http://127.0.0.1:1/away"}
    ended = run("audit", "--site", "replica", **away)
    assert ended.status == 0
    assert "the second proves by itself" in ended.out
    assert "nothing is missing" in ended.out


def test_what_cannot_be_repaired_is_said(run, settings: Settings) -> None:
    pack = put_pack(open_objects(settings), range(5))
    env = environment(settings) | {"STAMPEDE_GRACE_SECONDS": "0"}
    ended = run("reconcile", **env)
    assert f"unindexed: {pack.key}\n" in ended.out
    assert ended.status == 1  # nobody is there to be told of the thumbnails that lack
    assert f"without-thumbnails: {pack.key} (not repaired)" in ended.out
    assert "nothing is left" in run("reconcile", **env, STAMPEDE_RECONCILE="packs,replica").out


def test_a_broker_that_is_busy_for_a_moment_is_asked_again(run, settings: Settings) -> None:
    pack = put_all(open_objects(settings), range(5))
    busy = lambda event, times: (503 if times == 1 else 202, b"", {})
    with Receiver(busy) as broker:
        ended = run(
            "reconcile", **environment(settings), STAMPEDE_GRACE_SECONDS="0", K_SINK=broker.url
        )
        assert ended.status == 0, ended.out
        assert "once more in 5 s" in ended.out
        assert f"without-thumbnails: {pack.key}\n" in ended.out
        assert [each.headers["ce-subject"] for each in broker.accepted] == [pack.key]


def test_there_must_be_a_second_site(run, tmp_path: Path) -> None:
    line = run("audit", "--site", "replica", STAMPEDE_STORE=f"file://{tmp_path}/first").one_line()
    assert line == "there is no second site: set STAMPEDE_REPLICA to its store"
