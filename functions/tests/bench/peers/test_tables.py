from collections import Counter

import pytest

from stampede_bench.figures import Figure
from stampede_bench.peers.meter import Spent
from stampede_bench.peers.tables import by_part, storing_figures, without_idle

MESSAGES = [bytes(1000)] * 10
OURS = Spent(
    {"alerts": 0.02, "alerts workers": 0.01, "radosgw": 0.01, "ceph-osd": 0.0, "kafka": 0.01},
    2.0,
    Counter(PUT=2),
    4_000,
)
THEIRS = Spent(
    {"the peer": 0.5, "radosgw": 0.04, "kafka": 0.06}, 10.0, Counter(PUT=10, GET=5), 7_000
)
SPENT = {"ours": OURS, "theirs": THEIRS}


def figures() -> dict[tuple[str, str], Figure]:
    found = storing_figures("alerts", MESSAGES, SPENT, {name: {"kafka": 0.005} for name in SPENT})
    return {(each.subject.partition(",")[0], each.name): each for each in found}


def test_cpu_is_of_all_processes_and_each_system_stands_beside_the_first() -> None:
    found = figures()
    ours, theirs = (found["CPU of all processes", name] for name in ("ours", "theirs"))
    assert (ours.value, ours.unit, ours.rival) == (pytest.approx(5), "ms/alert", None)
    assert theirs.value == pytest.approx(60)
    assert theirs.rival is not None
    assert (theirs.rival.what, theirs.ratio) == ("ours", pytest.approx(12))
    assert found["CPU by process", "ours: its own processes"].value == pytest.approx(3)
    assert found["CPU by process", "theirs: kafka"].value == pytest.approx(6)


def test_a_slow_system_is_not_charged_for_idle_servers() -> None:
    found = figures()
    subject = "CPU without what the servers take when idle"
    assert found[subject, "ours"].value == pytest.approx(5 - 1)  # 0.005 of 2 s, of 10 alerts
    assert found[subject, "theirs"].value == pytest.approx(60 - 5)
    assert without_idle(OURS, {"kafka": 1.0})["kafka"] == 0  # not less


def test_bytes_are_beside_those_sent_and_requests_by_kind() -> None:
    found = figures()
    stored = found["bytes", "theirs"]
    assert (stored.value, stored.ratio) == (700, pytest.approx(0.7))
    requests = {name: one.value for (subject, name), one in found.items() if subject == "requests"}
    assert requests == {"ours: PUT": 200, "theirs: PUT": 1000, "theirs: GET": 500}


def test_processes_that_are_no_server_are_a_system_s_own() -> None:
    assert by_part({"read": 0.1, "ceph-mon": 0.2, "more": 0.3}, 100) == {
        "its own processes": pytest.approx(4),
        "ceph-mon": pytest.approx(2),
    }
