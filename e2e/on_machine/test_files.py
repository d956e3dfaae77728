"""Alerts from disk, without Kafka, into a directory in place of an S3 endpoint."""

import re
import signal
from pathlib import Path

import pytest

from e2e.commands import RUN_SECONDS, BackgroundCommand, run, until
from e2e.stampede_up import StampedeUp, stored_counts
from stampede_local.ports import free_port
from stampede_simulator.simulator import Mix, Simulator
from tests.support.store import stored_alerts

COUNT = 150
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A night's alerts as files."""
    folder = tmp_path_factory.mktemp("files") / "night"
    run("simulate", "--to", folder, "--alerts", COUNT, "--seed", 6).assert_succeeded()
    return folder


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "night.tar"
    options = ["--alerts", COUNT, "--seed", 7, "--corrupt", 0.05]
    run("simulate", "--to", path, *options).assert_succeeded()
    return path


def test_ingest_without_up_and_again(tmp_path: Path, folder: Path, tarball: Path) -> None:
    store = f"file://{tmp_path}/store"
    options = ["--store", store, "--data", tmp_path / "data"]
    for _ in range(2):  # a second time changes nothing
        done = run("ingest", folder, *options).assert_succeeded()
        assert "the store is the directory" in done.output
        assert stored_counts(done) == {
            "cutouts": (COUNT, COUNT, 0),
            "detections": (COUNT,) * 2 + (0,),
        }
    corrupt = sum(
        alert.fault is not None for alert in Simulator(7, mix=Mix(corrupt=0.05)).alerts(COUNT)
    )
    done = run("ingest", tarball, *options).assert_succeeded()
    received, stored, dead = stored_counts(done)["cutouts"]
    assert (received, stored, dead) == (COUNT, COUNT - corrupt, corrupt)
    everything = run("audit", "--data", tmp_path / "data", STAMPEDE_STORE=store).assert_succeeded()
    assert stored_counts(everything)["cutouts"] == (2 * COUNT, 2 * COUNT - corrupt, corrupt)


def test_nothing_but_junk_fails_and_names_the_dead_letters(tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.mkdir()
    for number in range(3):
        (junk / f"{number}.avro").write_bytes(b"no alert %d" % number)
    store = f"file://{tmp_path}/store"
    done = run("ingest", junk, "--store", store, "--data", tmp_path / "data")
    assert done.status == 1, done.report()
    assert "0 stored, 3 refused" in done.output
    assert f"STAMPEDE_STORE={store} stampede deadletters list" in done.output
    listed = run("deadletters", "list", STAMPEDE_STORE=store).assert_succeeded()
    assert "6 in all, 0 stored since" in listed.output


def test_ctrl_c_prints_how_to_continue(tmp_path: Path) -> None:
    many = tmp_path / "many.tar"
    run("simulate", "--to", many, "--alerts", 1500, "--seed", 8).assert_succeeded()
    store = tmp_path / "store"
    options = [many, "--store", f"file://{store}", "--data", tmp_path / "data"]
    with BackgroundCommand(tmp_path / "log", "ingest", *options) as ingest:
        until(lambda: list(store.glob("packs/*/*")) or ingest.child.poll() is not None, RUN_SECONDS)
        result = ingest.stop(signal.SIGINT)
    assert result.status == 130, result.report()
    assert "run the same again to store the rest" in " ".join(result.output.split())
    done = run("ingest", *options).assert_succeeded()
    assert stored_counts(done)["cutouts"] == (1500, 1500, 0)


def test_up_on_a_directory_and_ingest_into_it(tmp_path: Path, folder: Path) -> None:
    with StampedeUp(tmp_path / "data", "--store", f"file://{tmp_path}/store", "--topics", "") as up:
        output = " ".join(up.output().split())
        assert f"the store is the directory {tmp_path}/store" in output
        assert "one disk and no S3; give --store http://HOST:PORT/BUCKET for a real one" in output
        assert "Kafka" not in output
        assert "Ceph" not in output
        done = run("ingest", folder, "--data", tmp_path / "data").assert_succeeded()
        assert "starting" not in done.output  # it used the system that is up
        simulator = Simulator(6)
        alerts = list(simulator.alerts(COUNT))
        stored = stored_alerts.stored_cutouts(up.url, [alert.alert_id for alert in alerts])
        assert not stored_alerts.differences(stored_alerts.cutouts_of(alerts), stored)
        stored_alerts.assert_light_curves(up.url, simulator)
        audit = up.audit()
        assert stored_counts(audit)["detections"] == (COUNT, COUNT, 0)
        status = run("status", STAMPEDE_DATA=str(tmp_path / "data")).assert_succeeded()
        assert re.search(rf"cutouts +[0-9,]+ +{COUNT} +0 +0 ", status.output)
        again = run("up", "--data", tmp_path / "data", "--topics", "", "--port", free_port())
        assert again.status == 2, again.report()
        assert f"already running, pid {up.child.pid}:" in again.output
        other = run("ingest", folder, "--data", tmp_path / "data", "--store", "file:///else")
        assert other.status == 2, other.report()
        assert "leave out --store" in other.output
        up.stop(signal.SIGTERM).assert_succeeded()
