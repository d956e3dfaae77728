"""Runs the system, sends alerts, injects faults, and then proves that nothing is wrong."""

import json
import random
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import NamedTuple

from e2e.faults.alerts import Sent
from e2e.faults.check import check
from e2e.faults.disk import SmallDisk, small_disk
from e2e.faults.inject import Injector, Kind
from e2e.faults.kafka import TOPIC, Kafka
from e2e.faults.later import Later
from e2e.faults.objects import Stores
from e2e.faults.processes import Clocks, Processes, build_clock
from e2e.faults.proxy import Proxy
from e2e.faults.sockets import Sockets
from e2e.faults.up import with_ports
from e2e.stampede_up import StampedeUp
from stampede.cli.running import Running, running
from stampede.config.settings import Settings
from stampede.store.open import open_objects, open_replica
from stampede_local.cli import TOPICS
from stampede_local.ports import free_port
from stampede_local.servers import USUAL_PORTS
from stampede_simulator.cli import paced
from stampede_simulator.simulator import Mix, Simulator
from stampede_simulator.write import write

GRACE = "20"  # seconds
SITES = ("ceph", "second-site")
FIRST_NIGHT = date(2025, 11, 20)  # of the simulator, or earlier


class Plan(NamedTuple):
    """A campaign. The same plan injects the same faults at nearly the same times."""

    seed: int
    faults: int
    alerts: int
    seconds: float  # between two faults, on average


class FaultyUp(StampedeUp):
    """`stampede up` behind proxies, with images that expire only if a clock is years wrong."""

    def __init__(self, data: Path, proxies: dict[int, int], **env: str) -> None:
        days = (date.today() - FIRST_NIGHT).days + 180
        super().__init__(
            data,
            *("--second-site", "--topics", ",".join((*TOPICS, TOPIC))),
            STAMPEDE_GRACE_SECONDS=GRACE,
            STAMPEDE_CUTOUT_DAYS=str(days),
            E2E_PROXIES=json.dumps(proxies),
            **env,
        )
        self.arguments = ("e2e.faults.up", *self.arguments)


class Campaign:
    """A running system with a second site, and what disturbs it."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan, self._directory = plan, directory
        self._data = directory / "data"
        self._begin = time.monotonic()
        self.left_out: list[str] = []

    def run(self) -> dict[str, int]:
        """Run it; the faults that were injected, by name. Raises `AssertionError`."""
        self._data.mkdir(parents=True)
        ports = {name: free_port(2) for name in USUAL_PORTS}
        (self._data / "ports.json").write_text(json.dumps(ports))
        try:
            with ExitStack() as stack:
                return self._run(stack, ports)
        finally:
            for name in (*SITES, "kafka"):
                shutil.rmtree(self._data / name, ignore_errors=True)

    def say(self, text: str) -> None:
        """Print a line with the seconds since the beginning."""
        print(f"{time.monotonic() - self._begin:6.0f} s  {text}", flush=True)

    def _run(self, stack: ExitStack, ports: dict[str, int]) -> dict[str, int]:
        plan = self._plan
        simulator = Simulator(plan.seed, mix=Mix(corrupt=0.01, duplicates=0.02))
        chance, sent, later = random.Random(plan.seed), Sent(), Later()
        proxies = [
            stack.enter_context(Proxy(free_port(), ports[site], plan.seed + number))
            for number, site in enumerate(SITES)
        ]
        before = {ports[site]: proxy.port for site, proxy in zip(SITES, proxies, strict=True)}
        disk = self._data / "logs"  # of the logs, and of the spool
        mounted = stack.enter_context(small_disk(disk))
        clocks = self._clocks()
        spool = disk / "spool"
        spool.mkdir()
        env = {"STAMPEDE_SPOOL": str(spool)} | ({"E2E_CLOCKS": str(clocks)} if clocks else {})
        up = stack.enter_context(FaultyUp(self._data, before, **env))
        thread = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(sent.stop)
        self.say(f"ready at {up.url}")
        system = running(self._data)
        assert system is not None
        direct = _direct(system.settings, before)
        processes = Processes(chance, up, later)
        kafka = Kafka(chance, up.kafka, TOPICS, _unique(plan), processes, later)
        kinds = self._kinds(chance, system, direct, processes, kafka, proxies, later)
        if mounted:
            kinds[SmallDisk(chance, disk, later).fill] = 2
        else:
            self.left_out.append("fill: this user may not mount a file system")
        if clocks:
            kinds[Clocks(chance, clocks, later).jump] = 3
        injector = Injector(chance, kinds)
        rate = plan.alerts / (plan.faults * plan.seconds)
        alerts = paced(sent.record(simulator.alerts(plan.alerts)), rate)
        sending = thread.submit(write, alerts, f"kafka://{up.kafka}")
        while injector.total() < plan.faults or (
            injector.left_out and injector.total() < 2 * plan.faults
        ):
            time.sleep(chance.expovariate(1 / plan.seconds))
            self.say(f"{injector.total() + 1:4}  {injector.one()}")
        for proxy in proxies:
            proxy.be_kind()
        later.finish()
        assert sending.result() == plan.alerts
        self.left_out += injector.left_out
        self.say(f"{plan.alerts:,} alerts sent; waiting until all is stored and mended")
        check(up, sent, simulator, kafka, direct, self.say)
        up.stop().assert_succeeded()
        return _counts(injector, sent, proxies)

    def _kinds(
        self,
        chance: random.Random,
        system: Running,
        direct: Settings,
        processes: Processes,
        kafka: Kafka,
        proxies: Sequence[Proxy],
        later: Later,
    ) -> dict[Kind, int]:
        stores = Stores(chance, [open_objects(direct), open_replica(direct)], proxies)
        return {
            processes.kill: 6,
            processes.stop: 4,
            stores.request_fault: 10,
            stores.damage: 4,
            stores.compactor_of_another_time: 1,
            Sockets(chance, system.urls, system.settings, later).hold: 2,
            kafka.rebalance: 2,
            kafka.forget_what_is_stored: 1,
            kafka.forget_what_is_new: 1,
        }

    def _clocks(self) -> Path | None:
        """The directory of clocks; None without a C compiler."""
        directory = self._directory / "clocks"
        try:
            build_clock(directory)
        except (OSError, subprocess.CalledProcessError) as error:
            self.left_out.append(f"jump: no clock could be compiled: {error}")
            return None
        return directory


def _unique(plan: Plan):  # type: ignore[no-untyped-def]
    """Alerts that the campaign sends nowhere else; only Rubin's have ids of their own."""
    return Simulator(plan.seed + 1, mix=Mix(lsst_share=1.0, solar_system=0.0)).alerts(1 << 20)


def _counts(injector: Injector, sent: Sent, proxies: Sequence[Proxy]) -> dict[str, int]:
    done = dict(injector.done)
    done["messages-that-cannot-be-decoded"] = sent.undecodable
    for proxy in proxies:
        for fault, requests in proxy.injected.items():
            name = f"requests: {fault}"
            done[name] = done.get(name, 0) + requests
    return done


def _direct(settings: Settings, proxies: dict[int, int]) -> Settings:
    """The settings with the stores' own ports in place of the proxies'."""
    return with_ports(settings, {proxy: port for port, proxy in proxies.items()})
