"""The example of a function of your own gets each pack stored in a real Ceph, from the broker."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import pytest
import urllib3
import yaml

from e2e.commands import READY_SECONDS, until
from e2e.places import ROOT
from stampede.config.settings import Settings
from stampede.events.http.probes import is_ready
from stampede.store.open import open_objects
from stampede_local.ports import free_port
from stampede_local.process import Process, wait_until
from tests.conftest import bucket, ceph, ceph_packages
from tests.support.events.receiver import Receiver
from tests.support.store.s3_notifications import event_headers, record
from tests.support.store.two_sites import put_pack

__all__ = ["bucket", "ceph", "ceph_packages"]  # fixtures
EXAMPLE = ROOT / "eventing" / "examples" / "function"
PAGE = ROOT / "docs" / "how-to" / "own-function.md"
# What Knative's scaffolding does with a function.
SERVE = "from func_python.cloudevent import serve; from function import new; serve(new)"
STORED = "com.amazonaws.s3.ObjectCreated:Put"
SOON = 60  # seconds


class Example:
    """The function, and a broker with its Trigger."""

    def __init__(self, settings: Settings, folder: Path, missed: Receiver) -> None:
        self.objects, self.folder = open_objects(settings), folder
        self.bucket, port = settings.store.rpartition("/")[2], free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.function = self.process(
            "function",
            [sys.executable, "-c", SERVE],
            LISTEN_ADDRESS=f"127.0.0.1:{port}",
            PYTHONPATH=str(EXAMPLE),
            S3_ENDPOINT=settings.store.rpartition("/")[0],
            AWS_ACCESS_KEY_ID=settings.access_key,
            AWS_SECRET_ACCESS_KEY=settings.secret_key.get_secret_value(),
        )
        (spec,) = yaml.safe_load((EXAMPLE / "trigger.yaml").read_text())["triggers"].values()
        spec["delivery"]["deadLetterSink"]["uri"] = missed.url
        trigger = {"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger"}
        trigger |= {"metadata": {"name": "count-alerts"}, "spec": {"broker": "stampede"} | spec}
        (folder / "triggers.yaml").write_text(yaml.safe_dump(trigger))
        broker_port = free_port()
        self.broker_url = f"http://127.0.0.1:{broker_port}"
        self.broker = self.process(
            "broker",
            [sys.executable, "-m", "stampede", "serve", "broker"],
            STAMPEDE_PORT=str(broker_port),
            STAMPEDE_TRIGGERS=str(folder / "triggers.yaml"),
            STAMPEDE_SUBSCRIBERS=json.dumps({"count-alerts": self.url}),
        )
        self.http = urllib3.PoolManager(retries=False, timeout=90)

    def process(self, name: str, command: list[str], **env: str) -> Process:
        return Process(name, command, self.folder / f"{name}.log", env)

    def start(self) -> None:
        self.function.start()
        wait_until(partial(is_ready, self.url), self.function)

    def stored(self, key: str, url: str) -> int:
        """The response to the event of a stored object."""
        about = record(key)
        about["s3"]["bucket"]["name"] = self.bucket
        return self.post(url, key, json.dumps(about).encode())

    def post(self, url: str, key: str, body: bytes) -> int:
        headers = event_headers(STORED) | {"ce-subject": key, "ce-collection": "packs"}
        return self.http.request("POST", url, body=body, headers=headers).status

    def counted(self) -> dict[str, int]:
        """Number of alerts of each pack, as the function printed them."""
        lines = (self.folder / "function.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return {each["pack"].partition("/")[2]: each["alerts"] for each in found}


@pytest.fixture
def missed() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def example(bucket: Settings, tmp_path: Path, missed: Receiver) -> Iterator[Example]:
    made = Example(bucket, tmp_path, missed)
    made.broker.start()
    wait_until(partial(is_ready, made.broker_url), made.broker)
    yield made
    made.broker.stop()
    made.function.stop()


def test_every_pack_is_counted_and_what_was_missed_is_a_dead_letter(
    example: Example, missed: Receiver
) -> None:
    packs = {put_pack(example.objects, range(10 * n, 10 * n + n + 1)).key: n + 1 for n in range(5)}
    first, *others = packs
    assert example.stored(first, example.broker_url) == 202
    assert [event.headers["ce-subject"] for event in missed.accepted] == [first]
    example.start()
    for key in [first, *others, first]:
        assert example.stored(key, example.broker_url) == 202
    until(lambda: example.counted() == packs, SOON)
    assert len(missed.accepted) == 1


def test_a_line_is_printed_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two writes another thread may print, and the lines of both are none."""
    spec = spec_from_file_location("func", EXAMPLE / "function" / "func.py")
    func = module_from_spec(spec)
    spec.loader.exec_module(func)
    writes: list[str] = []
    monkeypatch.setattr(func, "count", lambda path, store: 7)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=writes.append, flush=lambda: None))
    about = {"bucket": {"name": "stampede"}, "object": {"key": "packs/1.parquet"}}
    function = func.new()
    function.store = None
    assert function.answer(SimpleNamespace(get_data=lambda: {"s3": about}))[0] == 200
    assert [*filter(None, writes)] == ['{"pack": "stampede/packs/1.parquet", "alerts": 7}\n']


def test_bad_events_are_dead_letters_and_a_store_that_is_down_is_retried(
    example: Example, missed: Receiver
) -> None:
    example.start()
    key = put_pack(example.objects, range(3)).key
    assert example.post(example.url, key, b"{}") == 400
    assert example.post(example.broker_url, key, b"{}") == 202
    assert [event.headers["ce-subject"] for event in missed.accepted] == [key]
    assert example.stored("packs/61000/none.parquet", example.url) == 200  # deleted since
    assert example.stored(key, example.url) == 200
    example.function.env["S3_ENDPOINT"] = f"http://127.0.0.1:{free_port()}"
    example.function.stop()
    example.start()
    assert example.stored(key, example.url) == 503


def test_the_page_for_one_machine_leads_to_a_running_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands as they stand, in three terminals; only ports and the data's place differ."""
    section = PAGE.read_text().partition("## On one machine")[2]
    up, install, *function, simulate = re.findall(r"^\$ (.+)$", section, re.MULTILINE)
    assert install.startswith("pip install ")  # what it installs is here already
    port, here = str(free_port()), tmp_path / "here"
    shutil.copytree(EXAMPLE, here / EXAMPLE.relative_to(ROOT))
    trigger = here / EXAMPLE.relative_to(ROOT) / "trigger-here.yaml"
    assert trigger.read_text().count("9000") == 1
    trigger.write_text(trigger.read_text().replace("9000", port))
    shell = {
        "XDG_DATA_HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "functions"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def terminal(name: str, *lines: str) -> Process:
        script = "\n".join(["cd here", *lines]).replace("9000", port)
        return Process(name, ["bash", "-ec", script], tmp_path / f"{name}.log", shell)

    terminals = [
        terminal("up", f"exec {up} --port {free_port()}"),
        terminal("function", *function),
        terminal("simulate", simulate),
    ]
    monkeypatch.chdir(tmp_path)
    try:
        terminals[0].start()
        until(lambda: "ready: " in terminals[0].tail() or not terminals[0].running, READY_SECONDS)
        assert terminals[0].running, terminals[0].tail()
        terminals[1].start()
        until(lambda: is_ready(f"http://127.0.0.1:{port}"), SOON)
        terminals[2].start()
        until(lambda: counted_in(terminals[1].log) >= 300, READY_SECONDS)
    finally:
        for each in reversed(terminals):
            each.stop()


def counted_in(log: Path) -> int:
    """Alerts of all packs that the function has printed."""
    found = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return sum({each["pack"]: each["alerts"] for each in found}.values())
