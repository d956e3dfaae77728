"""Which versions the tests ran with: the tests write it, `tools/tested_with.py` makes a page."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support import tested_with

TOOL = Path(__file__).parents[2] / "tools" / "tested_with.py"
OUTCOMES = ("passed", "failed", "skipped")
pytest_plugins = ("pytester",)
# Tests that run with two servers, in a folder of their own. The last asks for one as it runs.
TESTS = """
import pytest

@pytest.fixture(scope="session")
def gateway():
    class Server:
        def version(self):
            return "9.10"
    return Server()

@pytest.fixture
def gateway_bucket(gateway):
    return "bucket"

@pytest.fixture(scope="session")
def kafka():
    return "broker"

def test_passes(gateway, kafka): pass
def test_fails(gateway): assert False
def test_is_skipped(gateway): pytest.skip("not here")
def test_uses_none(): pass
def test_asks(request): request.getfixturevalue("gateway_bucket")
"""


@pytest.fixture
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


def line(version: str = "16.2.15", **more: object) -> dict[str, object]:
    counts = {"passed": 2, "failed": 0, "skipped": 0}
    named = {"software": "Ceph", "version": version, "suite": "functions/tests/store"}
    return {**named, "date": "2026-11-28", "run": "a", **counts, **more}


def test_the_page_is_made_of_what_is_kept_beside_it(tool) -> None:
    kept = json.loads(tool["KEPT"].read_text())
    assert tool["PAGE"].read_text() == tool["page"](kept), "run tools/tested_with.py"
    assert {row["software"] for row in kept} >= {"Ceph", "versitygw", "Kafka"}


def test_workers_of_one_run_are_added(tool) -> None:
    [row] = tool["merged"]([], [line(), line(passed=5, failed=1), line(skipped=3)])
    assert (row["passed"], row["failed"], row["skipped"]) == (9, 1, 3)
    assert "run" not in row


def test_the_longest_run_of_the_latest_day_is_kept(tool) -> None:
    lines = [line(run="whole", passed=90), line(run="one test", passed=1)]
    [row] = tool["merged"]([line(date="2026-11-27", passed=100)], lines)
    assert row["passed"] == 90
    [row] = tool["merged"]([row], [line(passed=88, failed=2), line(run="b", passed=90)])
    assert (row["passed"], row["failed"]) == (90, 0)
    [row] = tool["merged"]([row], [line(date="2026-11-29", passed=80, failed=10)])
    assert (row["date"], row["failed"]) == ("2026-11-29", 10)


def test_versions_are_in_the_order_of_their_numbers(tool) -> None:
    rows = tool["merged"]([], [line("18.2.7"), line("9.2"), line("16.2.15")])
    assert [row["version"] for row in rows] == ["9.2", "16.2.15", "18.2.7"]
    [shown] = [text for text in tool["page"](rows).splitlines() if "18.2.7" in text]
    suite = "[functions/tests/store](../functions/tests/store)"
    assert shown == f"| Ceph | 18.2.7 | {suite} | 2026-11-28 | 2 | 0 | 0 |"


def test_tests_are_counted_by_what_they_ran_with(pytester: pytest.Pytester) -> None:
    file = pytester.path / "build" / "lines"
    folder = pytester.mkdir("suite")
    (folder / "test_it.py").write_text(TESTS)
    recorder = tested_with.Recorder(file)
    assert pytester.inline_run(folder, plugins=[recorder]).ret == 1
    counts = {
        (found["software"], found["version"]): [found[name] for name in OUTCOMES]
        for found in map(json.loads, file.read_text().splitlines())
    }
    kafka = tested_with.KAFKA_VERSION
    assert counts == {("versitygw", "9.10"): [2, 1, 1], ("Kafka", kafka): [1, 0, 0]}


def test_a_suite_is_a_folder_at_most_three_deep() -> None:
    deep = tested_with.ROOT / "functions/tests/store/objects/test_object_store.py"
    assert tested_with.suite_of(deep) == "functions/tests/store"
    assert tested_with.suite_of(tested_with.ROOT / "client/tests/test_cone.py") == "client/tests"
