"""Bucket notifications of a real Ceph, also while the broker or the relay is down."""

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

import pytest
import urllib3

from e2e.commands import until
from stampede.config.settings import Settings
from stampede.events.http.probes import is_ready
from stampede.store.ceph import bucket_notifications
from stampede.store.open import open_objects
from stampede_local import installer
from stampede_local.ceph import LocalCeph
from stampede_local.ports import free_port
from stampede_local.process import Process, wait_until
from tests.support.events.receiver import Receiver

DOWN = 20
# Timeouts in seconds. They allow for a slow and busy machine.
SOON = 90
SERVED = 120  # RGW serves a new topic within 30 s
# A stopped gateway's claim to a topic expires after 90 s; RGW then serves it within 30 s.
RELEASED = 300
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCeph]:
    """A Ceph for this module only, because a test restarts its gateway."""
    installer.ensure(installer.CEPH, install=os.geteuid() == 0)
    directory = tmp_path_factory.mktemp("ceph")
    with LocalCeph(directory, free_port(2), "memstore", gigabytes=2) as server:
        yield server


class NotifiedRelay:
    """A bucket whose notifications go to a relay, and from there to a receiver for the Broker.

    If `held`, the test holds the relay's socket, as `stampede up` does.
    """

    def __init__(self, ceph: LocalCeph, path: Path, held: bool) -> None:
        self.broker = Receiver()
        self.settings = Settings(
            store=f"{ceph.endpoint}/notified-{time.monotonic_ns()}",
            access_key=ceph.keys.access_key,
            secret_key=ceph.keys.secret_key,
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
        self.process = Process("relay", command, path / "relay.log", env, inherits)

    def __enter__(self) -> Self:
        self.broker.__enter__()
        self.start_relay()
        settings = self.settings.model_copy(update={"notifications": f"{self.url}/"})
        bucket_notifications.setup(settings, lambda line: None)
        self.put("packs/first")
        self.wait_for({"packs/first"}, SERVED)
        return self

    def __exit__(self, *exc: object) -> None:
        bucket_notifications.remove(self.settings, lambda line: None)
        self.process.stop()
        self.broker.__exit__()
        self._socket.close()

    def start_relay(self) -> None:
        self.process.start()
        wait_until(partial(is_ready, self.url), self.process)

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
            assert time.monotonic() < deadline, f"no events within {seconds} s of {sorted(missing)}"
            time.sleep(0.1)

    def refused(self) -> float:
        """Number of notifications that the relay refused."""
        text = urllib3.request("GET", f"{self.url}/metrics").data.decode()
        found = re.search(r'stampede_events_total\{[^}]*"broker-down"\} (\S+)', text)
        return float(found[1]) if found else 0.0


@pytest.fixture
def make_relay(gateway: LocalCeph, tmp_path: Path) -> Iterator[Callable[[bool], NotifiedRelay]]:
    made: list[NotifiedRelay] = []

    def make(held: bool) -> NotifiedRelay:
        made.append(NotifiedRelay(gateway, tmp_path, held).__enter__())
        return made[0]

    yield make
    for each in made:
        each.__exit__()


def put_evenly(seconds: float, relay: NotifiedRelay, keys: list[str]) -> set[str]:
    """Store objects with these keys, evenly over several seconds."""
    for key in keys:
        relay.put(key)
        time.sleep(seconds / len(keys))
    return set(keys)


def test_a_broker_that_is_down_and_a_relay_that_is_killed(
    make_relay: Callable[[bool], NotifiedRelay],
) -> None:
    """All events arrive from Ceph's queue, and Ceph does not resend thousands a second."""
    relay = make_relay(True)
    relay.put("elsewhere/1")
    stored = relay.put(
        "tables/cutouts/1", "alerts/ztf/1", "thumbnails/1/1", "deadletters/cutouts/1"
    )
    relay.wait_for(stored, SOON)
    assert "elsewhere/1" not in relay.arrived

    begin = time.monotonic()
    relay.broker.__exit__()
    stored = put_evenly(DOWN, relay, [f"packs/broker-down-{i}" for i in range(20)])
    until(relay.refused, SOON)
    refused, seconds = relay.refused(), time.monotonic() - begin
    relay.broker.__enter__()
    relay.wait_for(stored, SOON)
    # The relay answers each of the 20 after 5 s. Without this delay RGW resends thousands a second.
    assert refused <= 20 * (1 + seconds / 5)

    relay.process.kill()
    stored = put_evenly(DOWN, relay, [f"packs/relay-down-{i}" for i in range(20)])
    relay.start_relay()
    relay.wait_for(stored, SOON)


def test_nothing_is_lost_if_the_relay_refuses_connections(
    make_relay: Callable[[bool], NotifiedRelay], gateway: LocalCeph
) -> None:
    """Ceph 16.2 continues by itself or stops sending; after a restart it sends what it kept."""
    relay = make_relay(False)
    relay.process.kill()
    stored = put_evenly(5, relay, [f"packs/refused-{i}" for i in range(10)])
    relay.start_relay()
    stored |= relay.put("packs/later")
    gateway.gateway.stop()
    gateway.gateway.start()
    wait_until(partial(connects, gateway.port), gateway.gateway)
    relay.wait_for(stored, RELEASED)


def connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
