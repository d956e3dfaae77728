import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.store.conformance import CHECKS
from stampede.store.objects.memory import MemoryObjects
from stampede_bench.figures import Context
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.storage import stress
from tests.support.store.two_sites import environment
from tests.support.store.watched_objects import Changed


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_memory_store_passes_the_checks_of_an_endpoint(check) -> None:
    check(MemoryObjects(), "a/")


def test_a_faulty_endpoint_fails_the_checks() -> None:
    context = Context(True, Path(), lambda _: None)
    one_byte_short = Changed(MemoryObjects(), read=lambda data: data[:-1])
    found = {figure.name: figure.met for figure in stress.works(context, one_byte_short, "")}
    assert not found["An object reads back as it was written, whatever its key and bytes"]
    assert not found["A ranged GET returns those bytes, and none beyond the end"]
    assert found["The etag of a PUT is the MD5 of its bytes"]


@pytest.mark.nightly
def test_stress_counts_every_request_and_leaves_nothing(
    measure, bucket: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(bucket).items():
        monkeypatch.setenv(f"STAMPEDE_{name}", value)
    monkeypatch.setattr(stress, "CLIENTS", (1, 20))
    found = measure("stress")
    assert {figure.met for (subject, _), figure in found.items() if subject == "what works"} == {
        True
    }
    many = next(subject for subject, name in found if name == "stored")
    assert found[many, "stored"].value == 60
    assert found[many, "rate of the last 20"].rival.value > 0
    shares = [figure.value for (of, name), figure in found.items() if name.startswith("took")]
    assert sum(shares) == pytest.approx(100)
    for at_once in ("1", "20"):
        for what in ("PUT", "GET"):
            subject = f"{what} of 15,000 bytes, {at_once} at once"
            assert found[subject, "failed"].value == 0
            assert found[subject, "p100"].value >= found[subject, "p50"].value > 0
    assert not list(open_bucket(bucket).list(""))


class Pod:
    """One of several processes that measure the same bucket."""

    def __init__(self, bucket: Settings, index: int, pods: int, out: Path) -> None:
        variables = environment(bucket) | {"STRESS_PODS": pods, "STRESS_RUN": "a"}
        self.out = out / str(index)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stampede_bench", "stress", "--quick", "--out", self.out],
            env=os.environ
            | {f"STAMPEDE_{name}": str(value) for name, value in variables.items()}
            | {"JOB_COMPLETION_INDEX": str(index)},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def wait_for(self, line: str) -> None:
        assert self._process.stderr
        for read in self._process.stderr:
            if line in read:
                return
        raise AssertionError(f"it ended without {line!r}")

    def end(self) -> tuple[int, str]:
        """Its exit status and its last lines, once it has ended."""
        _, progress = self._process.communicate(timeout=300)
        return self._process.returncode, progress


@pytest.mark.nightly
def test_several_pods_have_one_table_and_leave_nothing(bucket: Settings, tmp_path: Path) -> None:
    pods = [Pod(bucket, index, 3, tmp_path) for index in range(3)]
    for pod in pods:
        status, progress = pod.end()
        assert status == 0, progress
    figures = [json.loads((pod.out / "bench.json").read_text())["figures"] for pod in pods]
    assert figures[1:] == [[], []]
    found = {(each["subject"], each["name"]): each for each in figures[0]}
    assert sum(subject == "what works" for subject, _ in found) == len(CHECKS)
    for method in ("PUT", "GET"):
        subject = f"{method} of 15,000 bytes, 1,000 at once, of 3 pods"
        assert found[subject, "failed"]["value"] == 0
        assert found[subject, "rate"]["value"] > 0
    many = "3,000 objects of 15,000 bytes, 32 clients, of 3 pods"
    assert found[many, "stored"]["value"] == 3000
    assert not list(open_bucket(bucket).list(""))


@pytest.mark.nightly
def test_a_pod_that_is_killed_ends_the_others_within_a_minute(
    bucket: Settings, tmp_path: Path
) -> None:
    pods = [Pod(bucket, index, 3, tmp_path) for index in range(3)]
    pods[0].wait_for("PUT of 15,000 bytes")
    os.killpg(pods[2].pid, signal.SIGKILL)
    killed = time.monotonic()
    ends = [pod.end() for pod in pods]
    assert time.monotonic() - killed < 75  # a minute, and what it takes to tidy up
    for status, progress in ends[:2]:
        assert status == 1
        assert "failed: stress: pod 2 of 3 gave no sign of life for 40 s" in progress
    assert not list(open_bucket(bucket).list(""))
