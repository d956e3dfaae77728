"""A short campaign of faults on the real system with both sites; `make faults` runs a long one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.faults.campaign import Campaign, Plan
from e2e.faults.processes import YEAR, build_clock, clock_environment, set_clock

PLAN = Plan(seed=7, faults=25, alerts=500, seconds=1.2)


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_nothing_is_wrong_after_faults(tmp_path: Path) -> None:
    campaign = Campaign(PLAN, tmp_path)
    done = campaign.run()
    print(*campaign.left_out, sep="\n")
    assert sum(count for name, count in done.items() if ":" not in name) >= PLAN.faults
    # Each kind at least once; without root there is no small disk, without a compiler no clock.
    assert all(why.startswith(("fill:", "jump:")) for why in campaign.left_out), campaign.left_out


WAITS = """
import sys, threading, time
from confluent_kafka import Consumer
member = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "x", "log_level": 0})
print("ready", flush=True)
sys.stdin.readline()
begin = time.monotonic()
time.sleep(0.1)
with (condition := threading.Condition()):
    condition.wait(0.1)
member.poll(0.1)
print(time.time(), time.monotonic() - begin)
"""


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_jumps_and_waits_go_on(tmp_path: Path, years: int) -> None:
    build_clock(tmp_path)
    env = os.environ | clock_environment(tmp_path, "python")
    command = [sys.executable, "-c", WAITS]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        set_clock(tmp_path / "python.seconds", years * YEAR)
        output, _ = process.communicate("\n", timeout=60)
    now, waited = map(float, output.split())
    assert abs(now - time.time() - years * YEAR) < 60
    assert 0.3 <= waited < 30
