"""A function that takes its alerts from Kafka itself: both tables in one process, or one alone."""

import gzip
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import confluent_kafka
import psutil
import pytest

from stampede.alerts.columns import KINDS
from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.kafka import direct_input
from stampede.handlers.server import make_server
from stampede.store.offsets.coverage import topic_key
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS, PACKETS
from stampede.store.tables.table import Table
from stampede_local.demo import oracle
from stampede_local.kafka import LocalKafka
from stampede_local.ports import free_port
from tests.support import waiting
from tests.support.alerts import made_alerts
from tests.support.events import kafka_messages
from tests.support.events.receiver import PARTITIONS, Receiver
from tests.support.events.source_probes import liveness, readiness
from tests.support.served import Served, metrics

pytestmark = pytest.mark.integration

eventually = partial(waiting.eventually, seconds=120)
TABLES = {"cutouts": CUTOUTS, "lightcurves": PACKETS, "alerts": PACKETS}  # each has all alerts
KEY = "a-key-of-the-senders"


@pytest.fixture
def reading(serve, kafka: LocalKafka, topic: str) -> Callable[..., Served]:
    """Starts a function that reads the topic."""

    def start(name: str = "cutouts", **env: object) -> Served:
        usual = {
            "FROM_KAFKA": True,
            "KAFKA": kafka.bootstrap,
            "TOPICS": topic,
            "GROUP": topic,
            "BACKOFF_SECONDS": 0.05,
            "KAFKA_OPTIONS": json.dumps({"session.timeout.ms": "6000"}),
        }
        return serve(name, **(usual | env))

    return start


@pytest.fixture
def send(kafka: LocalKafka, topic: str) -> Callable[[list[bytes]], None]:
    """Sends messages to the partitions of the topic in turn."""

    return partial(kafka_messages.produce, kafka.bootstrap, topic, partitions=PARTITIONS)


def committed(kafka: LocalKafka, topic: str) -> int:
    """How many messages the group has committed, of all partitions."""
    return sum(kafka_messages.committed(kafka.bootstrap, topic, topic, PARTITIONS).values())


def value(served: Served, name: str) -> float:
    """The value of a metric."""
    (line,) = (
        line for line in metrics(served).decode().splitlines() if line.startswith(f"{name} ")
    )
    return float(line.rpartition(" ")[2])


@contextmanager
def suspended_workers(served: Served) -> Iterator[None]:
    """The workers of a function stand still."""
    workers = psutil.Process(served.process.pid).children()
    for worker in workers:
        worker.suspend()
    try:
        yield
    finally:
        for worker in workers:
            worker.resume()


def alerts(count: int, first: int = 1) -> list[bytes]:
    return [made_alerts.ztf_alert(candid) for candid in range(first, first + count)]


def stored(served: Served, messages: list[bytes], function: str = "cutouts") -> int:
    """How many of these alerts the function has stored."""
    reader = Table(open_objects(served.settings), TABLES[function])
    places = reader.lookup([oracle.head(message)["alert_id"] for message in messages])
    return len(set(places.column("alert_id").to_pylist()))


@pytest.mark.parametrize("name", TABLES)
def test_alerts_of_kafka_are_stored_and_refused_as_those_that_are_sent(
    reading, send, kafka: LocalKafka, topic: str, name: str
) -> None:
    """An alert that cannot be decoded becomes a dead letter; others are sent by HTTP meanwhile."""
    good = alerts(30)
    with Receiver() as letters:
        served = reading(name, DEAD_LETTER_SINK=letters.url, SOURCE_NAME="night")
        send([*good, b"no alert"])
        assert served.post(7, made_alerts.ztf_alert(99)).status == 204
        eventually(lambda: committed(kafka, topic) == 31)
        paths = [letter.path for letter in letters.accepted]
        letter = letters.accepted[0]
    assert paths == (["/cutouts", "/detections"] if name == "alerts" else ["/"])
    assert stored(served, [*good, made_alerts.ztf_alert(99)], name) == 31
    assert letter.body == b"no alert"
    assert letter.headers["ce-source"] == f"/apis/v1/namespaces/default/kafkasources/night#{topic}"
    assert letter.headers["ce-knativeerrordest"] == f"function:{name}"
    assert letter.headers["ce-knativeerrorcode"] == "400"
    told = metrics(served).decode()
    assert f'stampede_events_total{{function="{name}",outcome="stored"}} 31.0' in told
    assert 'stampede_source_events_total{outcome="dead-lettered"} 1.0' in told


def test_an_alert_that_one_table_refuses_is_a_dead_letter_of_that_one(
    reading, send, kafka: LocalKafka, topic: str
) -> None:
    """The other table has it; each alert was fetched once."""
    good = alerts(20)
    stamp = {"fileName": "x", "stampData": gzip.compress(b"GIF89a")}
    bad = made_alerts.ztf_alert(88, cutoutDifference=stamp)
    with Receiver() as letters:
        served = reading("alerts", DEAD_LETTER_SINK=letters.url)
        send([*good, bad])
        eventually(lambda: committed(kafka, topic) == 21)
        assert [(each.path, each.body) for each in letters.accepted] == [("/cutouts", bad)]
    assert stored(served, [*good, bad], "alerts") == 21
    assert stored(served, [*good, bad], "cutouts") == 20


@pytest.mark.parametrize(("settings", "most"), [({}, 1200), ({"IN_FLIGHT": 200}, 200)])
def test_half_of_the_alerts_in_flight_wait_while_the_others_are_stored(
    reading, send, settings: dict[str, object], most: int
) -> None:
    """There are more than a source has, unless the settings say how many."""
    count = 5 * most // 4
    served = reading(LINGER_MS=5000, BATCH_ALERTS=2000, **settings)
    eventually(lambda: readiness(served.process)[0] == 200)
    with suspended_workers(served):
        send(alerts(count))
        in_flight = partial(value, served, "stampede_source_in_flight_events")
        eventually(lambda: in_flight() == most)
    eventually(lambda: stored(served, alerts(count)) == count)
    table = Table(open_objects(served.settings), CUTOUTS)
    table.refresh()
    assert max(part.rows for part in table.runs()) == len(KINDS) * most // 2


def test_alerts_are_in_the_coverage_under_kafka_s_id_of_the_topic(
    reading, send, kafka: LocalKafka, topic: str
) -> None:
    served = reading()
    send(alerts(8))
    eventually(lambda: committed(kafka, topic) == 8)
    coverage = Table(open_objects(served.settings), CUTOUTS).coverage()
    (key,) = {each for each, _ in coverage.partitions()}
    assert key != topic_key(topic, None)
    assert [coverage.intervals(key, each) for each in range(PARTITIONS)] == [[(0, 2)]] * PARTITIONS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_function_that_ends_while_alerts_arrive_loses_none(
    reading, send, kafka: LocalKafka, topic: str, number: signal.Signals
) -> None:
    """What it committed is stored in both tables; the next process takes up the rest."""
    messages = alerts(1000)
    served = reading("alerts", BATCH_ALERTS=20, IN_FLIGHT=300)
    send(messages)
    eventually(lambda: stored(served, messages) > 20)
    os.kill(served.process.pid, number)
    eventually(lambda: not served.process.running)
    assert served.process.status == (0 if number == signal.SIGTERM else -9)
    before = committed(kafka, topic)
    assert before < len(messages), "it had nothing more to do"
    assert before <= min(stored(served, messages, each) for each in ("cutouts", "alerts"))
    if number == signal.SIGTERM:  # it stored and committed what it had taken
        assert before == stored(served, messages)
    reading("alerts")
    eventually(lambda: committed(kafka, topic) == len(messages))
    assert stored(served, messages) == stored(served, messages, "alerts") == len(messages)


def test_a_function_that_is_full_loses_none(reading, send, kafka: LocalKafka, topic: str) -> None:
    """It refuses what would be too much, for now."""
    messages = alerts(60)
    served = reading(QUEUE_BYTES=3 * len(messages[0]))
    send(messages)
    eventually(lambda: committed(kafka, topic) == len(messages))
    assert stored(served, messages) == len(messages)
    assert 'outcome="overloaded"' in metrics(served).decode()


def test_alerts_count_until_they_are_stored_though_another_takes_their_partition(
    reading, send, kafka: LocalKafka, topic: str
) -> None:
    """Their deliveries are cancelled then, but the function has them still."""
    messages = alerts(40)
    served = reading()
    eventually(lambda: readiness(served.process)[0] == 200)
    with suspended_workers(served):
        send(messages)
        size = sum(map(len, messages))
        eventually(lambda: value(served, 'stampede_held_bytes{function="cutouts"}') == size)
        other = confluent_kafka.Consumer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "group.id": topic,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        other.subscribe([topic])
        try:

            def given_up() -> bool:
                other.poll(0.1)  # joins the group
                return "partitions given up" in served.process.tail(100)

            eventually(given_up)
            time.sleep(0.5)  # until the deliveries have ended
            assert value(served, 'stampede_held_bytes{function="cutouts"}') >= size
        finally:
            other.close()
    eventually(lambda: committed(kafka, topic) == len(messages))
    assert stored(served, messages) == len(messages)
    eventually(lambda: value(served, 'stampede_held_bytes{function="cutouts"}') == 0)


def test_a_store_that_is_down_holds_the_alerts_in_kafka(
    reading, send, kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    store = tmp_path / "a file in place of the store"
    served = reading(STORE=f"file://{store}")
    store.touch()
    send(alerts(10))
    eventually(lambda: "sink is down" in served.process.tail(100))
    assert committed(kafka, topic) == 0
    store.unlink()
    eventually(lambda: committed(kafka, topic) == 10)
    assert stored(served, alerts(10)) == 10


def test_alerts_of_kafka_need_no_key_and_strangers_need_one(
    reading, send, kafka: LocalKafka, topic: str
) -> None:
    served = reading(EVENT_KEY=KEY)
    send(alerts(4))
    eventually(lambda: committed(kafka, topic) == 4)
    assert served.post(7, made_alerts.ztf_alert(99)).status == 401
    allowed = {"authorization": f"Bearer {KEY}"}
    assert served.post(7, made_alerts.ztf_alert(99), **allowed).status == 204


def test_a_function_without_kafka_is_alive_and_not_ready(reading, kafka: LocalKafka) -> None:
    served = reading(probe="liveness", KAFKA=f"127.0.0.1:{free_port()}")
    eventually(lambda: "no connection to Kafka" in readiness(served.process)[1])
    assert readiness(served.process)[0] == 503
    assert liveness(served.process)[0] == 200
    assert served.post(7, made_alerts.ztf_alert(99)).status == 204


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"TOPICS": ""}, "no topics: set STAMPEDE_TOPICS"),
        ({"DEAD_LETTER_SINK": "x"}, "STAMPEDE_DEAD_LETTER_SINK is not an http"),
        ({"KAFKA_OPTIONS": '{"no.such": "x"}'}, "No such configuration property"),
    ],
)
def test_a_wrong_setting_ends_the_function(reading, env: dict[str, str], expected: str) -> None:
    with pytest.raises(SetupError, match="ended with status 2") as failure:
        reading(**env)
    assert expected in failure.value.message.splitlines()[-1]


@pytest.mark.parametrize("signalled", [False, True])
def test_a_kafka_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, signalled: bool) -> None:
    """Also if a signal stops the function at the same time: then the status says it."""
    settings = Settings(port=free_port(), store="file:///none", from_kafka=True, topics="alerts")

    async def fails(*_: object) -> None:
        if signalled:
            os.kill(os.getpid(), signal.SIGTERM)
        raise SetupError("Kafka refuses")

    monkeypatch.setattr(direct_input, "send_alerts", fails)
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    try:
        with pytest.raises(SetupError, match="Kafka refuses"):
            make_server("cutouts", settings).run()
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
