"""What a real Ceph tells of what is stored, also while a broker or the relay is away."""

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import urllib3

from e2e.user import until
from stampede.settings import Settings
from stampede.store import bucket_notifications
from stampede.store.open import open_objects
from stampede_local import installer
from stampede_local.ceph import LocalCeph
from stampede_local.ports import free_port
from stampede_local.process import Process, is_ready, wait_until
from tests.support.receiver import Receiver

AWAY = 20
# Deadlines, in seconds, are for what never comes: a slow and busy machine is waited for.
SOON = 90
SERVED = 120  # a new topic is served within 30 s
# A gateway's claim to a topic outlives it by 90 s, and then it is served within 30 s.
RELEASED = 300
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCeph]:
    """A Ceph of this module's own: its gateway is started anew."""
    installer.ensure(installer.CEPH, install=os.geteuid() == 0)
    directory = tmp_path_factory.mktemp("ceph")
    with LocalCeph(directory, free_port(2), "memstore", gigabytes=2) as server:
        yield server


class Told:
    """A bucket that tells a relay, which tells a receiver in the Broker's place.

    With `held` the relay's socket is the test's own, as it is in `stampede up`.
    """

    def __init__(self, ceph: LocalCeph, path: Path, held: bool) -> None:
        self.broker = Receiver()
        self.settings = Settings(
            store=f"{ceph.endpoint}/told-{time.monotonic_ns()}",
            access_key=ceph.access_key,
            secret_key=ceph.secret_key,
        )
        self.objects = open_objects(self.settings)
        self._socket = socket.create_server(("127.0.0.1", free_port()), backlog=1024)
        port = self._socket.getsockname()[1]
        inherits: list[int] = []
        env = {"STAMPEDE_PORT": str(port), "K_SINK": self.broker.url}
        if held:
            inherits = [self._socket.fileno()]
            env["STAMPEDE_SOCKET"] = str(self._socket.fileno())
        else:
            self._socket.close()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "stampede", "serve", "notifications"]
        self.relay = Process("relay", command, path / "relay.log", env, inherits)

    def __enter__(self) -> "Told":
        self.broker.__enter__()
        self.start_relay()
        told = self.settings.model_copy(update={"notifications": f"{self.url}/"})
        bucket_notifications.setup(told, lambda line: None)
        self.put("packs/first")
        self.wait_for({"packs/first"}, SERVED)
        return self

    def __exit__(self, *exc: object) -> None:
        bucket_notifications.remove(self.settings, lambda line: None)
        self.relay.stop()
        self.broker.__exit__()
        self._socket.close()

    def start_relay(self) -> None:
        self.relay.start()
        wait_until(partial(is_ready, self.url), self.relay)

    def put(self, *keys: str) -> set[str]:
        for key in keys:
            self.objects.put(key, b"data")
        return set(keys)

    @property
    def arrived(self) -> set[str]:
        return {each.headers["ce-subject"] for each in self.broker.accepted}

    def wait_for(self, keys: set[str], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while missing := keys - self.arrived:
            assert time.monotonic() < deadline, f"not told in {seconds} s: {sorted(missing)}"
            time.sleep(0.1)

    def refused(self) -> float:
        """Notifications that were given back to the store."""
        text = urllib3.request("GET", f"{self.url}/metrics").data.decode()
        found = re.search(r'stampede_events_total\{[^}]*"broker-down"\} (\S+)', text)
        return float(found[1]) if found else 0.0


@pytest.fixture
def told(gateway: LocalCeph, tmp_path: Path) -> Iterator[Callable[[bool], Told]]:
    made: list[Told] = []

    def make(held: bool) -> Told:
        made.append(Told(gateway, tmp_path, held).__enter__())
        return made[0]

    yield make
    for each in made:
        each.__exit__()


def during(seconds: float, told: Told, keys: list[str]) -> set[str]:
    """Store these, evenly over a while."""
    for key in keys:
        told.put(key)
        time.sleep(seconds / len(keys))
    return set(keys)


def test_a_broker_that_is_away_and_a_relay_that_is_killed(told) -> None:
    """Everything arrives, out of Ceph's own queue, and Ceph does not hammer meanwhile."""
    told = told(True)
    told.put("elsewhere/1")
    stored = told.put("tables/cutouts/1", "alerts/ztf/1", "thumbnails/1/1", "deadletters/cutouts/1")
    told.wait_for(stored, SOON)
    assert "elsewhere/1" not in told.arrived

    begin = time.monotonic()
    told.broker.__exit__()
    stored = during(AWAY, told, [f"packs/broker-away-{i}" for i in range(20)])
    until(told.refused, SOON)
    refused, seconds = told.refused(), time.monotonic() - begin
    told.broker.__enter__()
    told.wait_for(stored, SOON)
    # 20 notifications, each held 5 s at a time: thousands a second without that.
    assert refused <= 20 * (1 + seconds / 5)

    told.relay.kill()
    stored = during(AWAY, told, [f"packs/relay-away-{i}" for i in range(20)])
    told.start_relay()
    told.wait_for(stored, SOON)


def test_nothing_is_lost_by_a_relay_that_refuses_connections(told, gateway: LocalCeph) -> None:
    """Ceph 16.2 goes on by itself or falls silent; started anew it tells whatever it kept."""
    told = told(False)
    told.relay.kill()
    stored = during(5, told, [f"packs/refused-{i}" for i in range(10)])
    told.start_relay()
    stored |= told.put("packs/later")
    gateway.gateway.stop()
    gateway.gateway.start()
    wait_until(partial(connects, gateway.port), gateway.gateway)
    told.wait_for(stored, RELEASED)


def connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
