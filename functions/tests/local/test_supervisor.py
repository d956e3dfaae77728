import time
from itertools import pairwise
from pathlib import Path

from stampede_local.process import Process
from stampede_local.supervisor import State, Supervisor
from tests.support.waiting import eventually, gone

SLEEP = ["sleep", "60"]


def test_a_process_that_ends_is_restarted_after_growing_pauses(tmp_path: Path) -> None:
    changes: list[tuple[float, str, State]] = []
    good = Process("good", SLEEP, tmp_path / "good")
    bad = Process("bad", ["sh", "-c", "echo again; exit 1"], tmp_path / "bad")
    supervisor = Supervisor(
        lambda process, state: changes.append((time.monotonic(), process.name, state)), first=0.1
    )
    with supervisor:
        supervisor.add(good)
        supervisor.add(bad)
        eventually(lambda: bad.tail().count("again") >= 4)
        first = good.pid
        assert supervisor.states()["good"] is State.RUNNING
        good.kill()
        eventually(lambda: good.running and good.pid != first)
    assert supervisor.states() == {"good": State.STOPPED, "bad": State.STOPPED}
    assert gone(good.pid)
    starts = [at for at, name, state in changes if name == "bad" and state is State.RUNNING]
    pauses = [later - sooner for sooner, later in pairwise(starts)]
    assert len(pauses) >= 3
    assert all(pause >= 0.1 * 2**n for n, pause in enumerate(pauses))


def test_a_running_process_is_adopted(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEP, tmp_path / "log")
    process.start()
    pid = process.pid
    with Supervisor() as supervisor:
        supervisor.add(process)
        eventually(lambda: supervisor.states() == {"sleeper": State.RUNNING})
        assert process.pid == pid
    assert gone(pid)


def test_stages_stop_in_order_and_their_processes_together(tmp_path: Path) -> None:
    """Users that ignore SIGTERM are waited for together; the server that they use stops last."""
    stubborn = ["sh", "-c", "trap '' TERM; echo up; while true; do sleep 0.1; done"]
    users = [Process(f"user-{n}", stubborn, tmp_path / f"user-{n}") for n in range(3)]
    server = Process("server", SLEEP, tmp_path / "server")
    order: list[str] = []
    supervisor = Supervisor(
        lambda process, state: order.append(process.name) if state is State.STOPPED else None
    )
    supervisor.start()
    supervisor.add(server)
    for user in users:
        supervisor.add(user, 1)
    eventually(lambda: server.running and all("up" in user.tail() for user in users))
    begin = time.monotonic()
    supervisor.stop(seconds=5)
    assert 5 <= time.monotonic() - begin < 15
    assert order[-1] == "server"
    assert sorted(order[:3]) == ["user-0", "user-1", "user-2"]
