"""Each log line goes to the current `sys.stderr`."""

import json
from io import StringIO

import pytest

from stampede.logs import configure_logs, get_logger


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
