"""A source that takes no alerts says so within 30 s, and recovers without a restart."""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from stampede_local.kafka import LocalKafka, make_topics, producer
from stampede_local.ports import free_port
from tests.support import waiting
from tests.support.events.receiver import Receiver
from tests.support.events.source_probes import liveness, readiness
from tests.support.mounted_secret import MountedSecret, kafka_files

eventually = partial(waiting.eventually, seconds=120)
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
# A source whose Kafka thread stands still while the file STUCK is there. 25 s stand for 60.
STICKY = """
import os, time
from stampede.events.kafka import source_health
from stampede.events.kafka.assigned_partitions import AssignedPartitions
source_health.STUCK_SECONDS = 25
commit = AssignedPartitions.commit
def stuck(*arguments):
    while os.path.exists(os.environ["STUCK"]):
        time.sleep(0.1)
    commit(*arguments)
AssignedPartitions.commit = stuck
"""


class KafkaWithLogin(LocalKafka):
    """A Kafka with another listener, at `guarded`, that demands a user and a password."""

    def __init__(self, directory: Path, port: int, login_port: int) -> None:
        super().__init__(directory, port)
        self.guarded = f"127.0.0.1:{login_port}"

    def _config(self) -> str:
        listener = f"PLAINTEXT://{self.bootstrap}"
        return (
            super()
            ._config()
            .replace(listener, f"{listener},LOGIN://{self.guarded}")
            .replace("PLAINTEXT:PLAINTEXT", "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT")
        ) + (
            "sasl.enabled.mechanisms=SCRAM-SHA-512\n"
            "listener.name.login.scram-sha-512.sasl.jaas.config="
            "org.apache.kafka.common.security.scram.ScramLoginModule required;\n"
        )

    def set_password(self, user: str, password: str) -> None:
        """Make a user, or change its password."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for changed in admin.alter_user_scram_credentials([change]).values():
            changed.result(30)

    def send(self) -> None:
        """Send an alert."""
        client = producer(self.bootstrap)
        client.produce("alerts", b"alert")
        assert client.flush(60) == 0


@pytest.fixture
def guarded(kafka_packages: Path, tmp_path: Path) -> Iterator[KafkaWithLogin]:
    """A Kafka that demands a login, with a topic `alerts`."""
    with KafkaWithLogin(tmp_path / "kafka", free_port(2), free_port()) as kafka:
        make_topics(kafka.bootstrap, ["alerts"], 1)
        yield kafka


def seconds_until(condition: Callable[[], bool]) -> float:
    begin = time.monotonic()
    eventually(condition)
    return time.monotonic() - begin


@pytest.mark.integration
def test_a_wrong_password(guarded: KafkaWithLogin, start) -> None:
    """Also while the source runs: the password is changed, and the connections break."""

    guarded.set_password("night", "another")
    login = LOGIN | {"sasl.username": "night", "sasl.password": "right"}
    with Receiver() as sink:
        source = start(
            sink,
            STAMPEDE_KAFKA=guarded.guarded,
            STAMPEDE_TOPICS="alerts",
            STAMPEDE_KAFKA_OPTIONS=json.dumps(login | {"session.timeout.ms": "6000"}),
        )
        eventually(lambda: "SASL authentication error" in source.tail(200))
        eventually(lambda: readiness(source)[1].startswith("no connection to Kafka"))
        assert readiness(source)[0] == 503
        guarded.set_password("night", "right")
        assert seconds_until(lambda: readiness(source) == (200, "ok\n")) < 60
        guarded.send()
        eventually(lambda: len(sink.accepted) == 1)

        guarded.set_password("night", "another")
        guarded.stop()
        guarded.start()
        assert seconds_until(lambda: readiness(source)[0] == 503) < 30
        time.sleep(5)  # Kafka answers again, and refuses
        assert readiness(source)[0] == 503
        assert liveness(source)[0] == 200, "a restart would not help"
        guarded.set_password("night", "right")
        assert seconds_until(lambda: readiness(source)[0] == 200) < 60
        guarded.send()
        eventually(lambda: len({event.id for event in sink.accepted}) == 2)
        assert source.running


@pytest.mark.integration
def test_a_login_that_changes(guarded: KafkaWithLogin, start, tmp_path: Path) -> None:
    """Another user, then another password; the source takes both from its files."""
    guarded.set_password("night", "of-the-old")
    secret = MountedSecret(tmp_path / "login", kafka_files("night", "of-the-old"))
    options = {"security.protocol": "SASL_PLAINTEXT", "session.timeout.ms": "6000"}
    with Receiver() as sink:

        def takes(count: int) -> bool:
            return len({event.id for event in sink.accepted}) == count

        source = start(
            sink,
            STAMPEDE_KAFKA=guarded.guarded,
            STAMPEDE_TOPICS="alerts",
            STAMPEDE_KAFKA_KEYS=str(secret),
            STAMPEDE_KAFKA_OPTIONS=json.dumps(options),
        )
        guarded.send()
        eventually(lambda: takes(1))
        pid = source.pid

        guarded.set_password("twilight", "of-the-new")
        secret.change(kafka_files("twilight", "of-the-new"))
        eventually(lambda: "keys were read again" in source.tail(500))
        guarded.send()
        eventually(lambda: takes(2))
        guarded.set_password("night", "another")
        guarded.stop()
        guarded.start()  # every connection breaks
        guarded.send()
        eventually(lambda: takes(3))

        guarded.set_password("twilight", "of-the-newest")  # before the files have it
        guarded.stop()
        guarded.start()
        eventually(lambda: readiness(source)[0] == 503)
        guarded.send()
        secret.change(kafka_files("twilight", "of-the-newest"))
        eventually(lambda: takes(4))
        assert (source.pid, source.running) == (pid, True)
        assert "of-the-" not in source.tail(10_000)


def test_a_kafka_thread_that_stands_still(start, produce, tmp_path: Path) -> None:
    stuck = tmp_path / "stuck"
    with Receiver() as sink:
        source = start(sink, STICKY, STUCK=str(stuck))
        eventually(lambda: readiness(source)[0] == 200)
        stuck.touch()
        begin = time.monotonic()
        eventually(lambda: readiness(source)[0] == 503)
        assert time.monotonic() - begin < 30
        assert "has not reported its state" in readiness(source)[1]
        assert liveness(source)[0] == 200
        eventually(lambda: liveness(source)[0] == 503)
        assert "Kafka was last asked for records" in liveness(source)[1]
        stuck.unlink()
        eventually(lambda: readiness(source)[0] == liveness(source)[0] == 200)
        made = produce(40)
        eventually(lambda: len(sink.accepted) == len(made))
