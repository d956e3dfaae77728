"""A function of a stranger, in a pod: its Trigger is a value of the chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from e2e.commands import until
from e2e.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.on_cluster.release import Release

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
TRIGGER = ROOT / "eventing" / "examples" / "function" / "trigger.yaml"
SERVE = Path(__file__).with_name("own_function") / "serve.py"
FUNCTION, SINK = "count-alerts", "missed"  # of that Trigger
SEED = 71
# Send an event whose data is no S3 record to the Broker. Stampede's own functions refuse it too;
# their Triggers have no dead-letter sink, so the Broker answers 500 once it has tried them all.
SEND = """
import sys
import urllib3
headers = {
    "ce-specversion": "1.0", "ce-id": "bad", "ce-source": "a-stranger", "ce-subject": "packs/bad",
    "ce-type": "com.amazonaws.s3.ObjectCreated:Put", "ce-collection": "packs",
    "content-type": "application/json",
}
urllib3.request("POST", sys.stdin.read(), body=b"{}", headers=headers, retries=False, timeout=60)
"""
LIST = """
from stampede.config.settings import Settings
from stampede.store.open import open_objects
print(*(info.key for info in open_objects(Settings()).list("packs/")))
"""


def service(release: Release, name: str) -> dict[str, Any]:
    """A Knative Service that runs `serve.py` with Stampede's image. It keeps one pod."""
    container = {
        "image": release.image(),
        "command": ["python3", "/function/serve.py"],
        "ports": [{"containerPort": 8080}],
        "env": [{"name": "IS_SINK", "value": "yes" if name == SINK else ""}],
        "volumeMounts": [{"name": "function", "mountPath": "/function"}],
    }
    volume = {"name": "function", "configMap": {"name": "own-function"}}
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "labels": {"networking.knative.dev/visibility": "cluster-local"},
        },
        "spec": {
            "template": {
                "metadata": {"annotations": {"autoscaling.knative.dev/min-scale": "1"}},
                "spec": {"containers": [container], "volumes": [volume]},
            }
        },
    }


def events(release: Release, name: str) -> list[dict[str, Any]]:
    """The events that a function has printed."""
    label = f"serving.knative.dev/service={name}"
    pods = ("--selector", label, "--container", "user-container", "--tail=-1")
    log = release.kubectl("logs", *pods, check=False).output
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def subjects(release: Release, name: str, status: int) -> set[str]:
    """Keys of objects whose events a function has answered with this status."""
    return {each["subject"] for each in events(release, name) if each["status"] == status}


@pytest.fixture
def subscribed(release: Release, tmp_path: Path) -> Iterator[Release]:
    """The release, with the function subscribed, and a dead-letter sink."""
    release.kubectl("create", "configmap", "own-function", f"--from-file={SERVE}")
    services = yaml.safe_dump_all([service(release, name) for name in (FUNCTION, SINK)])
    release.kubectl("apply", "--filename", "-", stdin=services)
    values = yaml.safe_load(TRIGGER.read_text())
    values["triggers"][FUNCTION]["delivery"]["deadLetterSink"]["uri"] = (
        f"http://{SINK}.{release.name}.svc/"
    )
    (tmp_path / "trigger.yaml").write_text(yaml.safe_dump(values))
    release.install(values_file=tmp_path / "trigger.yaml")
    yield release
    release.install()
    for kind, *names in (("ksvc", FUNCTION, SINK), ("configmap", "own-function")):
        release.kubectl("delete", kind, *names)


def test_every_pack_is_counted_and_what_is_no_pack_is_a_dead_letter(subscribed: Release) -> None:
    """Each event is refused once, with 503, and comes again; an event without data is missed."""
    release = subscribed
    before = set(release.python(LIST).split())
    release.stampede("simulate", "--alerts", 400, "--seed", SEED, seconds=300)
    release.wait_until_stored()
    packs = set(release.python(LIST).split()) - before
    assert packs
    until(lambda: packs <= subjects(release, FUNCTION, 200), 180, 2)
    assert packs <= subjects(release, FUNCTION, 503)
    assert not subjects(release, SINK, 200) & packs
    (broker,) = release.get("brokers", release.name)
    release.python(SEND, stdin=broker["status"]["address"]["url"].encode())
    missed = {"subject": "packs/bad", "knativeerrorcode": "400", "status": 200}
    until(lambda: missed in events(release, SINK), 120, 2)
