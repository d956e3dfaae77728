"""Processes are killed again and again while alerts arrive; in the end nothing is missing."""

import random
import time
from pathlib import Path

import pytest

from e2e.commands import RUN_SECONDS, BackgroundCommand
from e2e.stampede_up import StampedeUp, stored_counts
from stampede.events import BOTH_TABLES
from stampede_simulator.simulator import Mix, Simulator
from tests.support.store import stored_alerts

COUNT = 1500
RATE = 40  # alerts a second, so that alerts are in flight whenever a process dies
SEED = 9
FUNCTIONS = (BOTH_TABLES, "deadletters", "compact", "read")
SERVERS = ("radosgw", "ceph-osd", "kafka")


@pytest.mark.timeout(1500)
def test_nothing_is_lost_when_processes_are_killed(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    killed = 0
    rounds = [*FUNCTIONS, *SERVERS, *[BOTH_TABLES] * 4]
    rng.shuffle(rounds)
    simulator = Simulator(SEED, mix=Mix(corrupt=0.004, duplicates=0.02))
    alerts = list(simulator.alerts(COUNT))
    with StampedeUp(tmp_path / "data") as up:
        simulate = BackgroundCommand(
            tmp_path / "simulate.log",
            *("simulate", "--to", f"kafka://{up.kafka}", "--alerts", COUNT, "--seed", SEED),
            *("--corrupt", 0.004, "--duplicates", 0.02, "--rate", RATE),
        )
        with simulate:
            simulate.wait_for(f"[0-9] of {COUNT:,} alerts")
            for name in rounds:
                time.sleep(rng.uniform(0.5, 3.5))
                process = rng.choice(up.processes(name) or [None])
                if process is None:  # it is being restarted
                    continue
                print(f"kill -9 {name} {process.pid}")
                process.kill()
                killed += 1
            simulate.result(simulate.child.wait(RUN_SECONDS)).assert_succeeded()
        audit = up.wait_until_stored()
        bad = [alert for alert in alerts if alert.fault is not None]
        received, stored, dead = stored_counts(audit)["cutouts"]
        # A producer may send a record again if it got no response.
        assert received >= COUNT
        assert stored + dead == received
        assert dead >= len(bad)
        good = [alert for alert in alerts if alert.fault is None]
        found = stored_alerts.stored_cutouts(up.url, [alert.alert_id for alert in alerts])
        assert not stored_alerts.differences(stored_alerts.cutouts_of(good), found)
        stored_alerts.assert_light_curves(up.url, simulator)
        up.assert_restarted(*FUNCTIONS, *SERVERS)
        assert up.output().count("starting it again") >= killed > len(rounds) / 2
        up.stop().assert_succeeded()
