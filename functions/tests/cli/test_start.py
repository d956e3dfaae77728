"""`stampede serve NAME` as a process: what it has imported when it gives its first response."""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from stampede.store.objects.filesystem import DirectoryObjects
from stampede_local.ports import free_port
from tests.support.read.read_service import LSST_ALERT, LSST_OBJECT, sample_store

# Starts processes: too slow for the quick loop.
pytestmark = pytest.mark.integration

REPORT = """
import atexit, gc, os, sys
atexit.register(lambda: print("at the end:", gc.isenabled(), *sorted(sys.modules)))
from stampede.cli.start import main
main()
"""
# Writing, the command line, wrappers of Arrow, lines of logs, and what other functions need.
UNUSED = {"minio", "typer", "pyarrow.compute", "structlog", "rich", "astropy", "PIL", "datafusion"}
UNUSED |= {"jinja2", "stampede.read.lazy_routes"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("store")
    memory, directory = sample_store(), DirectoryObjects(folder)
    for info in memory.list(""):
        directory.put(info.key, memory.get(info.key))
    return f"file://{folder}"


def at_the_end(store: str, function: str, path: str) -> list[str]:
    """What a process reports that was stopped after one response."""
    port = free_port()
    env = {"STAMPEDE_STORE": store, "STAMPEDE_PORT": str(port), "STAMPEDE_EVENT_KEY": 16 * "k"}
    command = [sys.executable, "-c", REPORT, "serve", function]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env
    )
    try:
        assert answer(process, port, path) == 200
    finally:
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    _, _, report = out.partition("at the end: ")
    return report.split()


def answer(process: subprocess.Popen, port: int, path: str) -> int | None:
    """The status of the first response."""
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except ConnectionRefusedError:
            time.sleep(0.01)
        finally:
            connection.close()
    return None


def test_the_first_cutout_imports_nothing_that_it_does_not_need(store: str) -> None:
    collects, *modules = at_the_end(store, "read", f"/v1/alerts/{LSST_ALERT}/cutouts/science")
    assert collects == "True"  # the garbage collector is off for imports alone
    assert "stampede.read.app" in modules
    assert not UNUSED & set(modules)


def test_a_light_curve_needs_arrows_functions(store: str) -> None:
    _, *modules = at_the_end(store, "read", f"/v1/objects/{LSST_OBJECT}/lightcurve")
    assert not (UNUSED - {"pyarrow.compute"}) & set(modules)


@pytest.mark.parametrize("function", ["cutouts", "lightcurves", "deadletters", "compact"])
def test_a_function_that_writes_imports_its_client_when_it_writes(
    store: str, function: str
) -> None:
    collects, *modules = at_the_end(store, function, "/health/liveness")
    assert collects == "True"
    assert not {"minio", "typer"} & set(modules)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("serve", "no-such"), "no function 'no-such'"),
        (("serve",), "Missing argument"),
        (("serve", "read", "more"), "unexpected extra argument"),
        (("serve", "--no-such"), "No such option"),
    ],
)
def test_wrong_arguments_of_serve_are_refused_as_before(
    run: Callable, arguments: tuple[str, ...], line: str
) -> None:
    result = run(*arguments)
    assert result.status == 2
    assert line in " ".join((result.out + result.err).split())
