"""Runs the system, sends alerts, injects faults, and then proves that nothing is wrong."""

import json
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import NamedTuple

from e2e.commands import run, until
from e2e.faults.alerts import Sent
from e2e.faults.inject import Injector
from e2e.faults.proxy import Proxy
from e2e.faults.up import with_ports
from e2e.stampede_up import SecondSiteRead, StampedeUp, stored_counts
from stampede.cli.running import running
from stampede.cli.simulate import paced
from stampede.settings import Settings
from stampede.simulator.simulator import Simulator
from stampede.simulator.write import write
from stampede.store.open import open_objects, open_replica
from stampede.store.schema import THUMBNAILS
from stampede.store.tables import Table
from stampede_local.ports import free_port
from stampede_local.servers import USUAL_PORTS
from tests.support import stored_alerts

GRACE = "20"  # seconds
STORED_SECONDS = 900.0
SITES = ("ceph", "second-site")


class Plan(NamedTuple):
    """A campaign. The same plan injects the same faults at nearly the same times."""

    seed: int
    faults: int
    alerts: int
    seconds: float  # between two faults, on average


class FaultyUp(StampedeUp):
    """`stampede up` behind proxies."""

    def __init__(self, data: Path, proxies: dict[int, int]) -> None:
        super().__init__(
            data,
            "--second-site",
            STAMPEDE_GRACE_SECONDS=GRACE,
            E2E_PROXIES=json.dumps(proxies),
        )
        self.arguments = ("e2e.faults.up", *self.arguments)


def campaign(plan: Plan, directory: Path) -> dict[str, int]:
    """Run a campaign; the faults that were injected, by kind.

    Raises `AssertionError` if anything is wrong afterwards.
    """
    data = directory / "data"
    data.mkdir(parents=True)
    ports = {name: free_port(2) for name in USUAL_PORTS}
    (data / "ports.json").write_text(json.dumps(ports))
    try:
        return _run(plan, directory, data, ports)
    finally:
        for name in ("ceph", "second-site", "kafka"):
            shutil.rmtree(data / name, ignore_errors=True)


def _run(plan: Plan, directory: Path, data: Path, ports: dict[str, int]) -> dict[str, int]:
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {text}", flush=True)

    simulator = Simulator(plan.seed, corrupt=0.01, duplicates=0.02)
    chance, sent = random.Random(plan.seed), Sent()
    with ExitStack() as stack:
        proxies = [
            stack.enter_context(Proxy(free_port(), ports[site], plan.seed + number))
            for number, site in enumerate(SITES)
        ]
        before = {ports[site]: proxy.port for site, proxy in zip(SITES, proxies, strict=True)}
        up = stack.enter_context(FaultyUp(data, before))
        thread = stack.enter_context(ThreadPoolExecutor(1))
        say(f"ready at {up.url}")
        system = running(data)
        assert system is not None
        direct = _direct(system.settings, before)
        sites = [open_objects(direct), open_replica(direct)]
        injector = Injector(chance, up, proxies, sites)
        rate = plan.alerts / (plan.faults * plan.seconds)
        alerts = paced(sent.record(simulator.alerts(plan.alerts)), rate)
        sending = thread.submit(write, alerts, f"kafka://{up.kafka}")
        while injector.total() < plan.faults:
            time.sleep(chance.expovariate(1 / plan.seconds))
            say(f"{injector.total() + 1:4}  {injector.one()}")
        injector.end()
        assert sending.result() == plan.alerts
        say(f"{plan.alerts:,} alerts sent; waiting until all is stored and mended")
        _check(up, directory, data, sent, simulator, direct, say)
        up.stop().assert_succeeded()
    done = dict(injector.done)
    done["messages-that-cannot-be-decoded"] = sent.undecodable
    for proxy in proxies:
        for fault, requests in proxy.injected.items():
            name = f"requests: {fault}"
            done[name] = done.get(name, 0) + requests
    return done


def _check(up, directory, data, sent, simulator, direct, say) -> None:  # type: ignore[no-untyped-def]
    until(lambda: _mended(data), STORED_SECONDS, 2)
    say("reconcile --all finds nothing more")
    counts = stored_counts(up.wait_until_stored(seconds=STORED_SECONDS))
    for table, (received, stored, dead) in counts.items():
        assert stored + dead == received, table
    up.wait_until_stored("--site", "replica", seconds=STORED_SECONDS)
    deep = run("audit", "--deep", "--site", "both", "--data", data, seconds=STORED_SECONDS)
    deep.assert_succeeded()
    say("audit --deep of both sites finds nothing")
    objects = open_objects(direct), open_replica(direct)
    thumbnails = [Table(site, THUMBNAILS) for site in objects]
    ids = sorted(sent.ids)

    def drawn(table: Table) -> set[tuple[str, int]]:
        table.refresh()
        rows = table.lookup(ids).to_pylist()
        return {(row["survey"], row["alert_id"]) for row in rows}

    until(lambda: all(sent.with_images <= drawn(table) for table in thumbnails), STORED_SECONDS, 2)
    for site, (table, refused) in product(objects, sent.refused.items()):
        letters = {letter.data for letter in stored_alerts.letters(site, table).values()}
        assert letters == refused, f"{table}: {len(letters)} dead letters, not {len(refused)}"
    say(f"{sent.undecodable} messages that cannot be decoded are dead letters at both sites")
    with SecondSiteRead(directory / "second.log", direct) as read:
        for url in (up.url, read.url):
            say(f"{url}: {sent.compare(url, simulator)}")
        read.stop().assert_succeeded()


def _mended(data: Path) -> bool:
    """Whether a pass over everything finds nothing to mend."""
    return run("reconcile", "--all", "--data", data, seconds=STORED_SECONDS).status == 0


def _direct(settings: Settings, proxies: dict[int, int]) -> Settings:
    """The settings with the stores' own ports in place of the proxies'."""
    return with_ports(settings, {proxy: port for port, proxy in proxies.items()})
