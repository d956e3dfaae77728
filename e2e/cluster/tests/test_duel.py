"""The duel's command line, what it waits for, what it counts, and how it tells that."""

import os
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import psutil
import pytest

from e2e.commands import CommandResult, until
from e2e.duel import rest, table
from e2e.duel.arena import Arena, Seen
from e2e.duel.contestants import FUNCTIONS
from e2e.duel.contests import (
    ALONE,
    STARTS,
    VISITS,
    Result,
    Start,
    caught_up,
    is_of,
    repeated,
    seconds_down,
)
from e2e.duel.plan import CONTESTANTS, CONTESTS, QUICK, parse
from e2e.duel.rest import cpu_of_pods
from e2e.duel.starts import Starts
from e2e.duel.usage import Usage, group_of
from e2e.on_cluster.release import Release
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede_bench.visits.alerts import VisitAlerts, simulate
from stampede_bench.visits.sender import Sent, Visit
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store

LOOKS = [
    {("stampede", "stampede-cutouts-1-deployment-a", "cutouts"): 5.0},
    {
        ("stampede", "stampede-cutouts-1-deployment-a", "cutouts"): 6.0,
        ("stampede", "stampede-cutouts-1-deployment-b", "cutouts"): 2.0,
        ("stampede", "stampede-cutouts-1-deployment-b", "queue-proxy"): 0.5,
        ("keda", "keda-operator-c", "keda-operator"): 1.0,
        ("site", "ceph-0", "osd"): 9.0,
    },
    {("stampede", "stampede-cutouts-1-deployment-a", "cutouts"): 7.5},  # the other pod has ended
]


def shown(look: dict[tuple[str, str, str], float]) -> str:
    """As a kubelet shows it."""
    return "\n".join(
        f'container_cpu_usage_seconds_total{{container="{container}",namespace="{namespace}",'
        f'pod="{pod}"}} {value:e} 1764000000000'
        for (namespace, pod, container), value in look.items()
    )


class Cluster:
    looks = iter(LOOKS)

    def get(self, *_: str) -> list[dict]:
        return [{"metadata": {"name": "node"}}]

    def kubectl(self, *_: object, **__: object) -> CommandResult:
        return CommandResult([], 0, shown(next(self.looks)))


def test_a_container_costs_what_it_used_since_the_beginning() -> None:
    usage = Usage(Cluster(), group_of)  # type: ignore[arg-type]
    usage._look(0.0, new_is_old=True)
    for seconds in (2.0, 3.0):
        usage._look(seconds)
    assert usage.cpu() == {
        ("functions", "cutouts"): 7.5 - 5.0 + 2.0,
        ("functions", "queue-proxy"): 0.5,
        ("KEDA", "keda-operator"): 1.0,
    }
    assert usage.pod_seconds == {"functions": 2 * 2.0 + 3.0, "KEDA": 2.0}
    assert usage.most == {"functions": 2, "KEDA": 1}


def test_which_pods_take_part() -> None:
    assert group_of("stampede", "stampede-duel-lightcurves-5d8-x") == "functions"
    assert group_of("stampede", "stampede-alerts-cutouts-5d8-x") == "sources"
    assert group_of("knative-serving", "activator-5d8-x") == "Knative"
    assert group_of("stampede", "stampede-read-00001-deployment-x") == ""
    assert group_of("site", "kafka-0") == ""


def test_the_usual_plan_has_every_contest_in_turn_and_bursts_twice() -> None:
    steps = parse([]).steps()
    assert steps[: len(CONTESTANTS)] == [("burst", who) for who in CONTESTANTS]
    assert steps[-len(CONTESTANTS) :] == steps[: len(CONTESTANTS)]
    assert {contest for contest, _ in steps} == set(CONTESTS)
    starting = [who for contest, who in steps if contest == "starts"]
    assert starting == ["zero", "keda"]  # the pods of the others never start
    assert [who for contest, who in steps if contest == "visits"] == list(CONTESTANTS)


def test_a_plan_is_as_the_command_line_says() -> None:
    words = "--contest killed --contest burst --contestant keda --rounds 3 --alerts 2,000"
    plan = parse([*words.split(), "--set", "a.b=c=d", "--minutes", "9"])
    assert plan.steps() == [("burst", "keda"), ("killed", "keda"), *2 * [("burst", "keda")]]
    assert (plan.alerts, plan.backlog, plan.minutes, plan.busy) == (2_000, 2_000, 9.0, False)
    assert plan.values == {"a.b": "c=d"}
    quick = parse(["--quick"])
    assert (quick.alerts, quick.rounds, quick.minutes) == (4_000, 1, 8.0)
    assert set(quick.contests) == set(QUICK)


def test_all_alerts_of_a_plan_have_a_place() -> None:
    for words in ([], ["--quick"], ["--backlog", "90000"], ["--rounds", "5"]):
        plan = parse(words)
        each = {"visits": VISITS * plan.alerts, "backlog": plan.backlog, "singles": ALONE}
        each["starts"] = len(FUNCTIONS) * STARTS
        sent = sum(each.get(contest, plan.alerts) for contest, _ in plan.steps())
        assert sent < plan.most_alerts


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--alerts 0", "--alerts: invalid positive value: '0'"),
        ("--contest brust", "invalid choice: 'brust'"),
        ("--set thumbnails", "--set thumbnails: KEY=VALUE is needed"),
    ],
)
def test_what_a_plan_cannot_be(words: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words.split())
    assert why in capsys.readouterr().err


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("cores", "windows"),
    [
        ([1.9, 1.2, 0.2, 9.0], 3),
        ([0.5, 1.0, 0.4, 0.4, 0.4, 0.4, 0.4], 6),  # nearly at rest for long
        (100 * [1.5], 36),  # it waits 180 s and no longer
    ],
)
def test_when_pods_rest(cores: list[float], windows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "time", clock := Clock())

    def spent() -> dict[int, float]:
        return {7: sum(cores[: round(clock.now / rest.WINDOW)]) * rest.WINDOW}

    assert rest.wait_until_rested(spent) == pytest.approx(cores[windows - 1])
    assert clock.now == windows * rest.WINDOW


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a PID namespace")
def test_pods_are_processes_in_other_pid_namespaces() -> None:
    line = ["unshare", "--pid", "--fork", sys.executable, "-c", "while True: pass"]
    other = subprocess.Popen(line)
    try:
        until(lambda: any(seconds > 0.2 for seconds in cpu_of_pods().values()), 30)
        (busy,) = psutil.Process(other.pid).children()
        assert busy.pid in cpu_of_pods()
        assert os.getpid() not in cpu_of_pods()
    finally:
        for process in [*psutil.Process(other.pid).children(), other]:
            process.kill()
        other.wait()


WATCHED = """\
stampede-toolbox-x|PodScheduled Ready |toolbox |2026-11-24T22:00:00Z 
stampede-cutouts-1-deployment-a||cutouts queue-proxy |
stampede-cutouts-1-deployment-a|PodScheduled |cutouts queue-proxy |
stampede-lightcurves-1-deployment-b||lightcurves queue-proxy |
stampede-cutouts-1-deployment-a|PodReadyToStartContainers PodScheduled |cutouts queue-proxy |2026-11-24T22:00:03Z 
stampede-cutouts-1-deployment-a|PodReadyToStartContainers PodScheduled |cutouts queue-proxy |2026-11-24T22:00:03Z 2026-11-24T22:00:03Z 
stampede-cutouts-1-deployment-c||cutouts queue-proxy |
stampede-cutouts-1-deployment-a|Initialized Ready PodReadyToStartContainers PodScheduled |cutouts queue-proxy |2026-11-24T22:00:03Z 2026-11-24T22:00:03Z 
"""  # noqa: E501


def test_the_stages_of_a_start_are_stamped_when_they_are_first_seen() -> None:
    starts = Starts(Release(Cluster(), "stampede", "values.yaml"))  # type: ignore[arg-type]
    times = iter(range(100, 200))
    starts.note(WATCHED.splitlines(keepends=True), lambda: next(times))
    assert starts.first_after(100.5, is_of("cutouts")) == {
        "created": 0.5,
        "scheduled": 1.5,
        "sandbox": 3.5,
        "started": 4.5,
        "ready": 6.5,
    }
    assert starts.first_after(100.5, is_of("lightcurves")) == {"created": 2.5}
    assert starts.first_after(102.5, is_of("cutouts")) == {"created": 3.5}  # the second pod
    assert starts.first_after(107.5, is_of("cutouts")) == {}


def result(*durable: float, readable: tuple[float, ...] = ()) -> Result:
    usage = Usage(Cluster(), group_of)  # type: ignore[arg-type]
    usage.pod_seconds["functions"], usage.most["functions"] = 10 * durable[-1], 3
    return Result(Seen(np.array(durable), np.array(readable)), usage, [])


def test_a_row_has_the_least_and_the_greatest_of_all_rounds() -> None:
    rounds = [result(1.0, 2.0, 4.0, readable=(3.0,)), result(2.0, 3.0, 4.0, readable=(5.0,))]
    row = table.row("burst", "KEDA", rounds)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:5] == ["burst", "KEDA", "2.0 to 3.0", "3.9 to 4.0", "4.0"]
    assert cells[5:8] == 3 * ["3.0 to 5.0"]
    assert cells[8:12] == 4 * [""]  # the CPU of three alerts is noise
    assert cells[12:] == ["40", "3"]
    assert len(cells) == table.HEAD.split("\n")[0].count("|") - 1


def test_the_proxys_share_is_of_all_that_alerts_cost() -> None:
    cpu = {
        ("functions", "cutouts"): 0.6,
        ("functions", "queue-proxy"): 0.2,
        ("sources", "source"): 0.2,
        ("Knative", "activator"): 0.5,
    }
    figures = [value for value, _ in table.costs_of(cpu, 100)]
    assert figures == pytest.approx([8.0, 2.0, 20.0, 5.0])


def test_a_backlog_that_grows_faster_than_it_is_stored_never_ends() -> None:
    assert "240 alerts/s" in (slow := caught_up(24_000, 100.0))
    assert "7.4 M alerts, would take 8.5 h" in slow
    assert slow.endswith("never end while 256/s go on to arrive")
    assert caught_up(10_000, 10.0).endswith("2.8 h while 256/s go on to arrive")


def test_something_is_repeated_while_a_block_runs_and_an_error_in_it_is_told() -> None:
    names = iter(["a", "", "b"])
    with repeated(lambda: next(names, ""), 0.01) as done:
        until(lambda: len(done) == 2, 10)
    assert done == ["a", "b"]
    with pytest.raises(ZeroDivisionError), repeated(lambda: str(1 / 0), 0.01):
        time.sleep(0.1)


def test_a_start_tells_how_long_the_source_called_its_sink_down() -> None:
    log = 'x\n{"event": "sink is up again", "sink": "alerts", "seconds": 1.4}\n'
    start = Start("cutouts", {"created": 0.25, "ready": 2.0}, 2.5, seconds_down(log))
    (row,) = table.start_rows("KEDA", [start])
    assert row == "| cutouts | KEDA | 0.25 |  |  |  | 2.00 | 2.50 | 1.40 |"
    assert table.STARTS_HEAD.split("\n")[0].count("|") == row.count("|")


class Ingress:
    """What an arena asks of a cluster."""

    def __init__(self, read: str) -> None:
        self.ingress = read.removeprefix("http://")


class ReleaseWithRead:
    """What an arena asks of a release."""

    def __init__(self, read: str) -> None:
        self.cluster = Ingress(read)

    def url(self, _: str) -> str:
        return "http://stampede-read.stampede.example.test"


class StoringSender:
    """Stores what it should send."""

    def __init__(self, settings: Settings, alerts: VisitAlerts) -> None:
        self._settings, self._alerts = settings, alerts

    def send(self, visit: Visit) -> Future[Sent]:
        store(self._settings, [self._alerts.message(number) for number in visit.numbers], 0)
        done: Future[Sent] = Future()
        zeros = np.zeros(visit.size, np.int64)
        done.set_result(Sent(zeros, np.arange(visit.size), np.full(visit.size, time.time())))
        return done


class HalfASecond:
    """Every alert is durable half a second after it was sent."""

    def wait(self, sent: Sent) -> np.ndarray:
        return sent.times + 0.5


def test_an_arena_sees_when_alerts_are_durable_and_readable(tmp_path: Path) -> None:
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path)
    alerts = VisitAlerts([*simulate(1, 5, each=2)])
    for read in serving(make_app(settings)):
        sender = StoringSender(settings, alerts)
        release, times = ReleaseWithRead(read.url), HalfASecond()
        place = Arena(release, "", "duel", alerts, sender, times, parse([]))  # type: ignore[arg-type]
        asked = place.send(3, 0.0)
        seen = place.seen(asked)
        assert seen.durable == pytest.approx(3 * [0.5])
        assert len(seen.readable) == 3
        assert 0.0 < seen.readable.min() < 30.0
        sent = asked.sending.result()
        later = place.seen(asked._replace(begin=float(sent.times[0]) - 9.0))
        assert later.durable == pytest.approx(3 * [9.5])
        assert later.readable == pytest.approx(seen.readable + 9.0)
        assert place.send(1, 0.0, readable=False).visit.first == asked.visit.first + 3
        place.close()
