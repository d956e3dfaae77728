"""Functions that are not ready, and where the log of each is."""

import pytest

from stampede.config.settings import Settings
from stampede.doctor import processes as module
from stampede.doctor.finding import Installation
from stampede.doctor.processes import processes

URL = "http://127.0.0.1:1"


def test_the_log_of_a_process_of_up_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 600)  # only for what may have scaled to zero
    monkeypatch.setattr(module, "UP_SECONDS", 0)
    logs = {"alerts": "/data/logs/alerts.log"}
    (found,) = processes(Installation(Settings(), {"alerts": URL}, logs=logs))
    assert found.fault == "alerts is not ready"
    assert found.repair == f"look at its log, /data/logs/alerts.log; it answers at {URL}"


def test_elsewhere_the_log_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 0)
    (found,) = processes(Installation(Settings(), {"alerts": URL}))
    assert found.repair == f"look at its log; it answers at {URL}"
