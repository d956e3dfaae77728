"""Two tenants on one Ceph and one Kafka, by the commands of the how-to: neither sees the other."""

import json
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

import pytest
import urllib3

from e2e.commands import run, until
from e2e.places import ROOT
from e2e.stampede_up import StampedeUp
from stampede.config.settings import Settings
from stampede.events.auth.access import key_header
from stampede.events.http.probes import is_ready
from stampede.store.ceph.bucket_notifications import NotifyingBucket
from stampede.store.objects.object_store import Objects
from stampede.store.open import first_site, open_objects
from stampede.store.s3.signed_requests import S3Requests
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import LocalKafka, make_topics
from stampede_local.ports import free_port
from stampede_local.process import Process, wait_until
from stampede_simulator.simulator import Simulator
from tests.conftest import ceph, ceph_packages, kafka, kafka_packages
from tests.support.events.receiver import Receiver
from tests.support.served import event_headers
from tests.support.store import stored_alerts

__all__ = ["ceph", "ceph_packages", "kafka", "kafka_packages"]  # fixtures
pytestmark = pytest.mark.timeout(900)
PAGE = (ROOT / "docs" / "how-to" / "two-tenants.md").read_text()
USERS = re.findall(r"^\$ radosgw-admin (.+)$", PAGE, re.MULTILINE)
UP, SETUP, SIMULATE, AUDIT = re.findall(r"^\$ stampede (.+)$", PAGE, re.MULTILINE)
SEEDS = {"north": 61, "south": 62}
NOTIFIED = 90  # seconds; RGW serves a new topic within 30 s


class Tenant:
    """An installation, and the words that the page's commands leave open."""

    def __init__(self, name: str, server: LocalCeph, brokers: LocalKafka, path: Path) -> None:
        self.name, self.data = name, path / name
        self.port, self.event_key = free_port(), secrets.token_hex(16)
        self.words = {
            "TENANT": name,
            "SEED": str(SEEDS[name]),
            "STORE": f"{server.endpoint}/alerts",
            "KAFKA": brokers.bootstrap,
            "DATA": str(self.data),
            f"{name.upper()}_ACCESS": secrets.token_hex(10),
            f"{name.upper()}_SECRET": secrets.token_hex(20),
        }
        (user,) = [self.command(line) for line in USERS if f"--tenant={name}" in line]
        server.radosgw_admin(*user)
        make_topics(brokers.bootstrap, [f"{name}-lsst", f"{name}-ztf"])
        self.env: dict[str, Any] = {
            "STAMPEDE_ACCESS_KEY": self.words[f"{name.upper()}_ACCESS"],
            "STAMPEDE_SECRET_KEY": self.words[f"{name.upper()}_SECRET"],
            "STAMPEDE_GROUP": name,
            "STAMPEDE_INSTALLATION": name,
            "STAMPEDE_EVENT_KEY": self.event_key,
            "STAMPEDE_NOTIFICATIONS": f"http://127.0.0.1:{self.port}/",
        }
        self.broker = Receiver()  # which keeps what the relay sends
        self.alerts = list(Simulator(SEEDS[name]).alerts(60))

    def command(self, line: str) -> list[str]:
        """A command of the page with its addresses and keys."""
        return Template(line).substitute(self.words).split()

    def up(self) -> StampedeUp:
        words = self.command(UP)
        at = words.index("--data")
        self.started = StampedeUp(self.data, *words[1:at], *words[at + 2 :], **self.env)
        return self.started

    def relay(self) -> Process:
        """Stampede's relay, which gets the store's notifications, as the chart runs it."""
        env = {
            "STAMPEDE_PORT": str(self.port),
            "STAMPEDE_EVENT_KEY": self.event_key,
            "K_SINK": self.broker.url,
        }
        command = [sys.executable, "-m", "stampede", "serve", "notifications"]
        process = Process("relay", command, self.data / "relay.log", env)
        process.start()
        wait_until(partial(is_ready, f"http://127.0.0.1:{self.port}"), process)
        return process

    @property
    def settings(self) -> Settings:
        names = ("access_key", "secret_key", "installation")
        given: dict[str, Any] = {name: self.env[f"STAMPEDE_{name.upper()}"] for name in names}
        return Settings(store=self.words["STORE"], **given)

    @property
    def objects(self) -> Objects:
        return open_objects(self.settings)

    def of(self, *prefixes: str) -> set[str]:
        return {info.key for prefix in prefixes for info in self.objects.list(prefix)}

    def list_bucket_of(self, other: "Tenant") -> int:
        """The store's response if this tenant lists a tenant's bucket: TENANT:BUCKET in RGW."""
        requests = S3Requests(first_site(self.settings))
        return requests.send("GET", f"/{other.name}%3Aalerts", {}).status

    def notified(self) -> set[str]:
        """Keys of the objects that the relay was notified of."""
        return {event.headers["ce-subject"] for event in self.broker.accepted}


@pytest.fixture
def tenants(ceph: LocalCeph, kafka: LocalKafka, tmp_path: Path) -> Iterator[list[Tenant]]:
    made = [Tenant(name, ceph, kafka, tmp_path) for name in SEEDS]
    with ExitStack() as stack:
        for each in made:
            stack.enter_context(each.up())
            stack.enter_context(each.broker)
            stack.callback(each.relay().stop)
            run(*each.command(SETUP), **each.env).assert_succeeded()
        yield made


def test_neither_tenant_sees_the_other(tenants: list[Tenant]) -> None:
    for each in tenants:
        run(*each.command(SIMULATE), **each.env).assert_succeeded()
    for each in tenants:
        each.started.wait_until_stored()
        run(*each.command(AUDIT), **each.env).assert_succeeded()
        until(lambda each=each: each.of("packs/") <= each.notified(), NOTIFIED)
    north, south = tenants
    for own, other in ((north, south), (south, north)):
        expected = stored_alerts.cutouts_of(own.alerts)
        ids = [alert.alert_id for each in tenants for alert in each.alerts]
        assert stored_alerts.stored_cutouts(own.started.url, ids) == expected
        assert not own.notified() & other.of("packs/", "alerts/")
        # The other's bucket, its topics and its functions.
        assert own.list_bucket_of(own) == 200
        assert own.list_bucket_of(other) == 403
        topics = NotifyingBucket(first_site(own.settings)).topics()
        assert {topic.endpoint.split("/")[2] for topic in topics} == {f"127.0.0.1:{own.port}"}
        assert post(own, own.event_key) != 401
        assert post(other, own.event_key) == 401


def post(tenant: Tenant, key: str) -> int:
    """The response of a tenant's function to an event that is no alert, with a key."""
    headers = event_headers(0) | key_header(Settings(event_key=key))
    url = json.loads((tenant.data / "up.json").read_text())["urls"]["alerts"]
    return urllib3.request("POST", url, body=b"no alert", headers=headers, timeout=60).status
