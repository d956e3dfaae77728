"""Each log line goes to the current `sys.stderr`."""

import json
import subprocess
import sys
from io import StringIO

import pytest

from stampede.telemetry.logs import configure_logs, get_logger


def test_a_line_goes_to_the_present_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    log = get_logger()
    with StringIO() as gone:
        monkeypatch.setattr("sys.stderr", gone)
        configure_logs()
    monkeypatch.setattr("sys.stderr", now := StringIO())
    log.warning("a thing", count=3)
    assert json.loads(now.getvalue()) | {"timestamp": ""} == {
        "event": "a thing",
        "count": 3,
        "level": "warning",
        "timestamp": "",
    }


PROGRAM = """
import sys
from stampede.telemetry.logs import configure_command_logs, get_logger

configure_command_logs("dead-lettered")
log = get_logger()
log.info("reconciled", keys=3)
log.warning("dead-lettered", id="1")
log.warning("a site does not answer", why="no route\\n to host", site="second")
log.error("damaged")
"""


def test_a_command_shows_sentences_and_not_what_its_report_tells() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "stampede: warning: a site does not answer (why=no route to host, site=second)",
        "stampede: error: damaged",
    ]


def test_a_line_is_written_though_structlog_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """No descriptor may be free, and then the first line is about that."""
    monkeypatch.setitem(sys.modules, "structlog", None)
    get_logger().error("no room", files=3)
    assert capsys.readouterr().err == "error: no room {'files': 3}\n"
