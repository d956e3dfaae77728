"""`stampede status`, of a store and of processes that response or do not."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stampede.cli import status as module
from stampede.cli.main import app
from stampede.config.settings import Settings
from stampede.store.integrity.ledger import expect
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import topic_key
from stampede_local.kafka import LocalKafka
from tests.handlers.audit.test_audit import commit, produce, topic_id
from tests.handlers.audit.test_audit import store as store_offsets

Run = Callable[..., object]


@contextmanager
def process(ready: int) -> Iterator[str]:
    """The URL of a process whose readiness probe has this response."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"stampede_source_lag_events 7\n" if self.path == "/metrics" else b""
            self.send_response(200 if body else ready)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.0)
    monkeypatch.setenv("STAMPEDE_STORE", f"file://{tmp_path}/store")
    monkeypatch.setattr("stampede.cli.running.DATA", tmp_path / "none")
    return tmp_path / "store"


def status(*arguments: str):
    return CliRunner().invoke(app, ["status", *arguments], catch_exceptions=False)


@pytest.mark.parametrize("names", [("cutouts", "source"), ("cutouts", "read")])
def test_all_is_well(store: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]) -> None:
    """With a source and without: then the function itself tells the lag."""
    with process(200) as url:
        urls = dict.fromkeys(names, url)
        monkeypatch.setenv("STAMPEDE_FUNCTIONS", json.dumps(urls))
        result, shown = status("--json"), status()
    assert result.exit_code == shown.exit_code == 0
    document = json.loads(result.stdout)
    assert document["well"] is True
    assert document["processes"] == dict.fromkeys(names, "running")
    cutouts = document["functions"][0]
    assert cutouts["function"] == "cutouts"
    assert (cutouts["stored"], cutouts["missing"], cutouts["lag"]) == (0, 0, 7)
    assert "2 of 2 processes are running" in shown.stdout


@pytest.mark.parametrize("ready", [503, None])
def test_a_process_that_is_not_ready_is_not_well(
    store: Path, monkeypatch: pytest.MonkeyPatch, ready: int | None
) -> None:
    with process(ready or 200) as url:
        where = url if ready else "http://127.0.0.1:1"
        monkeypatch.setenv("STAMPEDE_FUNCTIONS", json.dumps({"cutouts": where}))
        result, shown = status("--json"), status()
    assert result.exit_code == shown.exit_code == 1
    assert json.loads(result.stdout)["processes"] == {"cutouts": "not ready"}
    assert "cutouts is not ready" in shown.stdout


def test_the_page_describes_every_field(store: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "audit-in-a-program.md").read_text()
    cells = re.findall(r"^\| (`.+?) \|", page.partition("## Status")[2], re.MULTILINE)
    described = re.findall(r"`(\w+)`", " ".join(cells))
    document = json.loads(status("--json").stdout)
    assert sorted(described) == sorted([*document, *document["functions"][0]])


def test_missing_alerts_are_not_well(store: Path) -> None:
    expect(DirectoryObjects(store), "files-night-1", 3)
    result = status("--json")
    assert result.exit_code == 1
    assert [flow["missing"] for flow in json.loads(result.stdout)["functions"]] == [3, 3]


def test_what_is_in_flight_is_not_missing(
    store: Path, monkeypatch: pytest.MonkeyPatch, kafka: LocalKafka, topic: str
) -> None:
    """One function is behind the other: only Kafka knows whether its alerts were due."""
    settings = Settings(kafka=kafka.bootstrap, group=topic)
    key, objects = topic_key(topic, topic_id(settings, topic)), DirectoryObjects(store)
    produce(settings, topic, {0: 6})
    for table, count in (("cutouts", 2), ("detections", 6)):
        store_offsets(objects, table, {(key, 0): range(count)})
    for name, value in (("KAFKA", kafka.bootstrap), ("TOPICS", topic), ("GROUP", topic)):
        monkeypatch.setenv(f"STAMPEDE_{name}", value)
    commit(settings, topic, {0: 2})
    assert [each["missing"] for each in json.loads(status("--json").stdout)["functions"]] == [0, 0]
    commit(settings, topic, {0: 6})
    assert [each["missing"] for each in json.loads(status("--json").stdout)["functions"]] == [4, 0]


def test_watch_prints_a_document_in_each_line(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = iter([0.0])

    def sleep(seconds: float) -> None:
        if next(pauses, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(module.time, "sleep", sleep)
    result = status("--json", "--watch")
    assert result.exit_code == 130
    (line,) = result.stdout.splitlines()
    assert json.loads(line)["well"] is True
