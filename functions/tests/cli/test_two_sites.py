"""Two sites on the command line: what the second lacks is named, then repaired, then proven."""

from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.store.open import open_objects, open_replica
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.events.receiver import Receiver
from tests.support.store.two_sites import put_all, put_pack

# Starts processes: too slow for the quick loop.
pytestmark = pytest.mark.integration


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
    result = run("audit", "--site", "replica", **env)
    assert result.status == 1
    assert "missing from detections: alerts partition 0, offsets 0 to 8" in result.out
    assert "not there yet: 2 of packs/" in result.out
    assert pack.key in result.out

    dry = run("reconcile", "--dry-run", **env)
    assert (dry.status, f"not-replicated: {pack.key} (not repaired)" in dry.out) == (1, True)
    assert list(open_replica(settings).list("")) == []

    done = run("reconcile", **env, STAMPEDE_RECONCILE="replica")
    assert (done.status, f"not-replicated: {pack.key}\n" in done.out) == (0, True)
    proven = run("audit", "--site", "replica", **env)
    assert proven.status == 0
    assert "nothing is missing" in proven.out
    assert "complete below" in proven.out


def test_the_offset_below_which_the_second_site_is_complete(run, settings: Settings) -> None:
    env = environment(settings)
    objects = open_objects(settings)
    for number in range(3):
        put_all(objects, range(4 * number, 4 * number + 4))
    run("reconcile", **env, STAMPEDE_RECONCILE="replica")
    second = open_replica(settings)
    gone = Table(second, DETECTIONS).runs()[0]
    [(low, high)] = gone.coverage.intervals("alerts", 0)
    second.delete(gone.key)
    result = run("audit", "--site", "replica", **env)
    assert result.status == 1
    assert f"missing from detections: alerts partition 0, offsets {low} to {high - 1}" in result.out
    assert f"tables/, 0.0 MB: {gone.key}" in result.out
    line = next(line for line in result.out.splitlines() if line.startswith("detections"))
    assert line.split()[-1] == str(low)


def test_without_the_first_site_the_second_proves_what_it_can(run, settings: Settings) -> None:
    env = environment(settings)
    put_all(open_objects(settings), range(5))
    run("reconcile", **env, STAMPEDE_RECONCILE="replica")
    first_down = env | {"STAMPEDE_STORE": "http://127.0.0.1:1/away"}
    result = run("audit", "--site", "replica", **first_down)
    assert result.status == 0
    assert "the second proves by itself" in result.out
    assert "nothing is missing" in result.out


def test_what_cannot_be_repaired_is_named(run, settings: Settings) -> None:
    pack = put_pack(open_objects(settings), range(5))
    env = environment(settings) | {"STAMPEDE_GRACE_SECONDS": "0"}
    result = run("reconcile", **env)
    assert f"unindexed: {pack.key}\n" in result.out
    assert result.status == 1  # without a Broker nothing can draw the missing thumbnails
    assert f"without-thumbnails: {pack.key} (not repaired)" in result.out
    assert "nothing is left" in run("reconcile", **env, STAMPEDE_RECONCILE="packs,replica").out


def test_a_pass_is_retried_when_the_broker_is_busy(run, settings: Settings) -> None:
    pack = put_all(open_objects(settings), range(5))
    busy = lambda event, times: (503 if times == 1 else 202, b"", {})
    with Receiver(busy) as broker:
        result = run(
            "reconcile", **environment(settings), STAMPEDE_GRACE_SECONDS="0", K_SINK=broker.url
        )
        assert result.status == 0, result.out
        assert "once more in 5 s" in result.out
        assert f"without-thumbnails: {pack.key}\n" in result.out
        assert [each.headers["ce-subject"] for each in broker.accepted] == [pack.key]


def test_there_must_be_a_second_site(run, tmp_path: Path) -> None:
    line = run("audit", "--site", "replica", STAMPEDE_STORE=f"file://{tmp_path}/first").one_line()
    assert line == "there is no second site: set STAMPEDE_REPLICA to its store"
