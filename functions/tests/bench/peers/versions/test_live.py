import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede_bench.peers.versions.live import Live, Version, children, recorded

# Starts what a `stampede up` starts, as far as names go, and waits.
UP = """
import subprocess, sys
wait = "import time; time.sleep(60)"
for name in sys.argv[1:]:
    subprocess.Popen([sys.executable, "-c", wait, "serve", name])
print("ready", flush=True)
exec(wait)
"""
FAILING = "#!/bin/sh\necho these words: $*; exit 3\n"


def state(pid: int) -> str:
    """The state of a process: T if it is stopped (proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def stopped(live: Live) -> set[str]:
    """The processes that are stopped, once the kernel has done what it was told."""
    time.sleep(0.05)
    return {name for name, pid in live.pids.items() if state(pid) == "T"}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """A system of processes that do nothing."""
    command = [sys.executable, "-c", UP, "alerts", "read", "scrub", "scrub"]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert up.stdout
    assert up.stdout.readline() == "ready\n"
    urls = {"alerts": "http://127.0.0.1:1"}
    (tmp_path / "up.json").write_text(json.dumps({"event_key": "k" * 20, "urls": urls}))
    python = tmp_path / "python"
    python.write_text(FAILING)
    python.chmod(0o755)
    settings = Settings().model_copy(update={"store": "http://127.0.0.1:1/bucket"})
    found = Live(Version("a version", str(python), {}), settings, {}, tmp_path, up.pid)
    try:
        yield found
    finally:
        for pid in found.pids.values():
            subprocess.run(["kill", str(pid)], check=True)
        found.end()
        assert up.wait(10) == -signal.SIGTERM
        up.stdout.close()


def test_only_what_is_measured_runs(live: Live) -> None:
    every = {"alerts", "read", "scrub", "scrub 2"}
    assert set(live.pids) == every
    assert stopped(live) == every
    with live.awake():
        assert stopped(live) == {"read"}
    with live.awake("read"):
        assert stopped(live) == every - {"read"}
    assert stopped(live) == every


def test_a_command_that_fails_says_whose_it_is(live: Live, tmp_path: Path) -> None:
    with pytest.raises(StampedeError) as failed:
        live.run("audit")
    said = f"these words: -m stampede audit --data {tmp_path}"
    assert str(failed.value).startswith(f"a version: stampede audit failed: {said}")


def test_each_survey_has_a_topic_and_its_events_the_key_of_the_system(live: Live) -> None:
    assert live.topic("ztf") == "bucket-ztf"
    assert live.settings.event_key.get_secret_value() == "k" * 20


def test_a_process_without_functions_has_no_children() -> None:
    assert children(1 << 30) == {}


@pytest.mark.parametrize(("text", "whole"), [(None, False), ('{"pid', False), ('{"pid": 1}', True)])
def test_a_half_written_file_is_not_read(tmp_path: Path, text: str | None, whole: bool) -> None:
    if text is not None:
        (tmp_path / "up.json").write_text(text)
    assert recorded(tmp_path) is whole
