"""The command line as a process: what it prints, and its exit status."""

import socket
from pathlib import Path

import pytest

from stampede import __version__
from stampede.config.settings import Settings
from stampede_local.ports import free_port

# Starts processes: too slow for the quick loop.
pytestmark = pytest.mark.integration

COMMANDS = (
    "version",
    "settings",
    "serve",
    "demo",
    "up",
    "simulate",
    "ingest",
    "audit",
    "status",
    "deadletters",
    "reconcile",
    "rebuild",
)


def test_without_a_command_it_lists_the_commands(run) -> None:
    result = run()
    assert result.status == 2
    assert all(f" {command} " in result.out + result.err for command in COMMANDS)
    assert "Start with `stampede up`" in result.out + result.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run, command: str) -> None:
    result = run(command, "--help")
    assert result.status == 0
    assert f"stampede {command}" in result.out
    assert result.err == ""


def test_version(run) -> None:
    assert run("version").out == f"{__version__}\n"


def test_settings_lists_every_setting_with_its_value(run) -> None:
    result = run(
        "settings", STAMPEDE_PORT="9999", K_SINK="http://sink", STAMPEDE_SECRET_KEY="open sesame"
    )
    lines = result.out.splitlines()
    assert "export STAMPEDE_PORT=9999" in lines
    assert "export K_SINK=http://sink" in lines
    assert "# bootstrap servers" in lines
    assert len([line for line in lines if "export " in line]) == len(Settings.model_fields)
    assert "open sesame" not in result.out


def test_an_unknown_function_is_one_line(run) -> None:
    line = run("serve", "no-such").one_line()
    assert line.startswith("no function 'no-such': there are ")
    assert {"compact", "cutouts", "thumbnails"} <= {*line.replace(",", " ").split()}


@pytest.mark.parametrize(
    "function", ["cutouts", "lightcurves", "deadletters", "thumbnails", "compact", "read"]
)
def test_a_wrong_store_is_one_line(run, function: str) -> None:
    line = run("serve", function, STAMPEDE_STORE="ftp://store").one_line()
    assert line.startswith("not a store: 'ftp://store'; give http(s)://")


def test_wrong_settings_are_one_line(run) -> None:
    line = run("serve", "cutouts", STAMPEDE_PORT="many", STAMPEDE_LINGER_MS="soon").one_line()
    assert "STAMPEDE_PORT=many: Input should be a valid integer" in line
    assert "STAMPEDE_LINGER_MS=soon" in line


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({}, "no topics: set STAMPEDE_TOPICS"),
        ({"STAMPEDE_TOPICS": "alerts"}, "no sink: set K_SINK"),
        ({"STAMPEDE_TOPICS": "alerts", "K_SINK": "sink"}, "K_SINK is not an http(s) URL: sink"),
    ],
)
def test_a_source_without_its_settings(run, env: dict, message: str) -> None:
    assert message in run("serve", "source", **env).one_line()


def test_an_unknown_command_and_a_wrong_option(run) -> None:
    for arguments in (["no-such"], ["up", "--no-such"], ["demo", "--alerts", "0"], ["ingest"]):
        assert run(*arguments).status == 2


def test_ingest_of_nothing(run, tmp_path: Path) -> None:
    for arguments in (["ingest"], ["demo", "--alerts-from"]):
        line = run(*arguments, "no-such").one_line()
        assert line == "no-such: there is no such file or folder"
    assert not list(tmp_path.iterdir())


def test_simulate_to_nowhere(run) -> None:
    assert "cannot write to 's3://bucket'" in run("simulate", "--to", "s3://bucket").one_line()
    assert "give kafka://127.0.0.1:9092" in run("simulate", "--to", "127.0.0.1:9092").one_line()
    assert "codec must be one of" in run("simulate", "--to", "x", "--codec", "zip").one_line()


def test_audit_of_an_empty_store(run, tmp_path: Path) -> None:
    result = run("audit", STAMPEDE_STORE=f"file://{tmp_path}/store")
    assert result.status == 0
    assert "nothing was received yet" in result.out


def test_audit_of_a_store_that_is_down(run) -> None:
    line = run("audit", STAMPEDE_STORE="http://127.0.0.1:1/stampede").one_line()
    assert "http://127.0.0.1:1" in line


def test_without_a_system_and_a_store_it_says_what_to_do(run) -> None:
    for command in ("audit", "status", "reconcile", "rebuild", "check-store", "setup"):
        assert run(command).one_line().startswith("no `stampede up` runs here: start it, ")


@pytest.mark.parametrize("store", ["http://127.0.0.1:1/ab", "http://127.0.0.1:1/no_bucket!"])
def test_a_bad_name_of_a_bucket_is_one_line(run, store: str) -> None:
    line = run("audit", STAMPEDE_STORE=store).one_line()
    assert "invalid bucket name" in line
    assert "a bucket has 3 to 63 lower-case letters" in line


def test_up_without_its_kafka_or_store_is_never_ready(run, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    port = str(free_port())
    for options, message in (
        (["--store", store, "--kafka", "127.0.0.1:1"], "Kafka at 127.0.0.1:1: no broker answers"),
        (["--store", "http://127.0.0.1:1/bucket", "--topics", ""], "cannot connect (Connection"),
    ):
        result = run("up", "--port", port, *options)
        assert result.status == 2
        assert message in result.err.splitlines()[-1]
        assert "ready" not in result.err + result.out


def test_up_on_a_taken_port(run, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        store = f"file://{tmp_path}/store"
        result = run("up", "--store", store, "--topics", "", "--port", str(port))
        assert result.status == 2
        assert f"port {port} of 127.0.0.1 is taken" in result.err


def test_programs_that_are_missing_are_named_with_the_command(run, tmp_path: Path) -> None:
    result = run("up", "--no-install", "--port", str(free_port()), PATH=str(tmp_path))
    assert result.status == 2
    assert "this machine lacks ceph-mon, ceph-osd, radosgw, ceph" in result.err
    assert "sudo apt-get install --yes --no-install-recommends ceph-common" in result.err
