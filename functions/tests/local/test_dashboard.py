"""The status of `up`, as text."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from rich.console import Console

from stampede.config.settings import Settings
from stampede.handlers.audit.status import View
from stampede_local.dashboard import dashboard, line
from stampede_local.system import System


def test_the_status_names_objects_in_quarantine() -> None:
    key = f"tables/detections/0001-{32 * '0'}.parquet"
    assert line(View({}, [], {}, [key])) == f"in quarantine: {key}"
    assert line(View({}, [], {}, [])) == ""


def test_a_process_that_does_not_answer_is_named_with_its_log() -> None:
    view = View({"read": "running", "alerts": "not ready"}, [], {}, [])
    assert line(view) == "alerts is not ready"
    made = SimpleNamespace(
        settings=Settings(store="file:///store", kafka=""),
        urls={"read": "http://read.test"},
        plan=SimpleNamespace(data=Path("/data")),
        processes={"alerts": SimpleNamespace(log=Path("/data/logs/alerts.log"))},
    )
    output = io.StringIO()
    Console(file=output, width=100).print(dashboard(view, cast("System", made)))
    assert "alerts is not ready; its log: /data/logs/alerts.log" in output.getvalue()
    assert "read is" not in output.getvalue()
