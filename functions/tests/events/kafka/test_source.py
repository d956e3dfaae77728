"""The source as a process, between a real Kafka and a real HTTP server."""

import asyncio
import base64
import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.cloudevents.kafka_record import Record
from stampede.events.delivery.outlet import Outlet
from stampede.events.kafka.consumer import Consumer
from stampede.events.kafka.source import check, overrides, status_server
from stampede.events.kafka.source_health import SourceHealth
from stampede_local.kafka import LocalKafka, make_topics
from stampede_local.ports import free_port
from tests.support import waiting
from tests.support.events.receiver import PARTITIONS, Place, Received, Receiver, Reply, arrived
from tests.support.events.source_probes import readiness, samples

eventually = partial(waiting.eventually, seconds=120)


def ends(places: dict[Place, bytes]) -> dict[int, int]:
    """The offset after the last of each partition."""
    after = dict.fromkeys(range(PARTITIONS), 0)
    for partition, offset in places:
        after[partition] = max(after[partition], offset + 1)
    return after


def test_every_record_arrives_as_the_event_of_a_kafka_source(
    start, produce, committed, topic, kafka
):
    # Not a fixed day: Kafka deletes records that are older than its retention.
    sent = datetime.now(UTC).replace(microsecond=789_000)
    milliseconds = int(sent.timestamp()) * 1000 + 789
    made = produce(40, key=b"ZTF 1", headers=[("Schema-Id", b"1101")], timestamp=milliseconds)
    with Receiver() as sink:
        source = start(sink, K_CE_OVERRIDES='{"extensions": {"site": "one"}}')
        eventually(lambda: len(sink.accepted) >= 40)
        eventually(lambda: committed() == ends(made))  # while it runs
        source.stop()
    assert source.status == 0
    assert arrived(sink) == made
    assert len(sink.requests) == 40
    # An attribute cannot say that the header's name has upper case.
    whole = b'{"key": "WlRGIDE=", "headers": [["Schema-Id", "MTEwMQ=="]], "lost": ""}'
    for event in sink.requests:
        partition, offset = event.place
        assert {k: v for k, v in event.headers.items() if k not in ("host", "content-length")} == {
            "ce-specversion": "1.0",
            "ce-type": "dev.knative.kafka.event",
            "ce-source": f"/apis/v1/namespaces/default/kafkasources/stampede#{topic}",
            "ce-subject": f"partition:{partition}#{offset}",
            "ce-id": f"partition:{partition}/offset:{offset}",
            "ce-time": f"{sent:%Y-%m-%dT%H:%M:%S}.789Z",
            "ce-partitionkey": "ZTF%201",
            "ce-key": "ZTF%201",
            "ce-kafkarecord": base64.b64encode(whole).decode(),
            "ce-kafkaheaderschemaid": "1101",
            "ce-knativekafkapartition": str(partition),
            "ce-knativekafkaoffset": str(offset),
            "ce-site": "one",
            "ce-topicid": kafka_topic_id(kafka, topic),
        }


def test_a_source_proves_itself_with_the_token_that_is_mounted(start, produce, tmp_path) -> None:
    """Every event has the token; after it was renewed, the new one."""
    token = tmp_path / "token"
    token.write_text("first\n")

    def answer(event: Received, times: int) -> Reply:
        bearer = event.headers.get("authorization")
        return (204 if bearer == f"Bearer {token.read_text().strip()}" else 401), b"", {}

    with Receiver(answer) as sink:
        source = start(sink, STAMPEDE_SENDER_TOKEN=str(token))
        produce(10)
        eventually(lambda: len(sink.accepted) >= 10)
        token.write_text("second\n")
        produce(10)
        eventually(lambda: len(sink.accepted) >= 20, seconds=40)
        source.stop()
    assert {event.headers["authorization"] for event in sink.accepted} == {
        "Bearer first",
        "Bearer second",
    }


def kafka_topic_id(kafka: LocalKafka, topic: str) -> str:
    """As Kafka's own tools write it."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    return str(described.topic_id).replace("+", "-").replace("/", "_")


@pytest.mark.parametrize("records", [60, 300])
def test_a_topic_made_anew_is_read_from_its_beginning(
    start, produce, kafka, topic, committed, records
) -> None:
    """While the source runs, and with fewer and with more records than the old topic had."""
    old = produce(200)
    with Receiver() as sink:
        source = start(sink)
        eventually(lambda: committed() == ends(old))
        first = kafka_topic_id(kafka, topic)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([topic])[topic].result(30)
        eventually(lambda: created(admin, topic))
        eventually(lambda: described(admin, topic))
        second = kafka_topic_id(kafka, topic)
        new = produce(records)
        eventually(
            lambda: (
                {e.place for e in sink.accepted if e.headers["ce-topicid"] == second} == set(new)
            )
        )
        eventually(lambda: committed() == ends(new))
        made_anew = f'stampede_source_topics_made_anew_total{{family="{topic}"}}'
        eventually(lambda: samples(source)[made_anew] == 1)
        source.stop()
    assert second != first
    bodies = {e.place: e.body for e in sink.accepted if e.headers["ce-topicid"] == second}
    assert bodies == new


def test_what_was_in_flight_when_its_topic_went_is_delivered(start, produce, kafka, topic) -> None:
    """The partitions are taken from the source then, but nobody else can deliver their alerts."""
    made, first, up = produce(20), kafka_topic_id(kafka, topic), False
    with Receiver(lambda event, times: (204 if up else 503, b"", {})) as sink:
        source = start(sink)
        eventually(lambda: "sink is down" in source.tail())
        time.sleep(1)  # all are in flight
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([topic])[topic].result(30)
        eventually(lambda: re.search("partitions (lost|given up)", source.tail(200)) is not None)
        time.sleep(3)
        up = True
        eventually(lambda: arrived(sink) == made, seconds=20)
        eventually(lambda: created(admin, topic))
        new = produce(4)
        eventually(lambda: len(sink.accepted) >= 24)
    ids = {event.headers["ce-topicid"] for event in sink.accepted[:20]}
    assert (ids, len(sink.accepted), arrived(sink)) == ({first}, 24, made | new)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_an_offset_that_was_committed_in_another_topic_is_not_believed(
    start, produce, kafka, topic, committed, strategy
) -> None:
    """As a mirrored or restored cluster may have it."""
    made = produce(40)
    options = json.dumps({"partition.assignment.strategy": strategy})
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic})
    elsewhere = TopicPartition(topic, 0, 7, metadata="topicid=kWq0Yv1nQ3uZb8m2rXoXkA")
    here = TopicPartition(topic, 1, 4, metadata=f"topicid={kafka_topic_id(kafka, topic)}")
    consumer.commit(offsets=[elsewhere, here], asynchronous=False)
    consumer.close()
    with Receiver() as sink:
        start(sink, STAMPEDE_KAFKA_OPTIONS=options)
        eventually(lambda: committed() == ends(made))
    assert arrived(sink) == {at: body for at, body in made.items() if at[0] != 1 or at[1] >= 4}


def test_the_source_says_which_offsets_are_no_messages(start, kafka, topic, committed) -> None:
    """Control records of transactions, and what was aborted; not what retention deleted."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)

    def transaction(count: int, commit: bool) -> None:
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(topic, b"alert", partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(60)

    for count, commit in ((2, True), (3, False), (2, True)):  # offsets 0-1, 3-5 aborted, 7-8
        transaction(count, commit)
    with Receiver() as sink:
        sink.delay = 1.0
        start(sink, STAMPEDE_IN_FLIGHT="2")
        eventually(lambda: len(sink.accepted) >= 4)
        skipped = {e.place[1]: e.headers.get("ce-skippedoffsets") for e in sink.accepted}
        assert skipped == {0: None, 1: None, 7: "5", 8: None}


def test_partitions_that_are_added_and_topics_made_later_are_read_within_ten_seconds(
    start, kafka, topic
) -> None:
    later = f"{topic}-later"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    with Receiver() as sink:
        source = start(sink, STAMPEDE_TOPICS=f"{topic},{later}")
        eventually(lambda: readiness(source) == (200, "ok\n"))
        time.sleep(1)  # so that none of it is in the client's first look at the topics
        for name, partition in ((topic, PARTITIONS), (later, 0)):
            begin = time.monotonic()
            if name == topic:
                more = NewPartitions(topic, PARTITIONS + 1)
                admin.create_partitions([more])[topic].result(30)
            else:
                make_topics(kafka.bootstrap, [later], 1)
            producer.produce(name, name, partition=partition)
            assert producer.flush(30) == 0
            eventually(
                lambda name=name: name.encode() in {e.body for e in sink.accepted}, seconds=30
            )
            seconds = time.monotonic() - begin
            print(f"{name}/{partition} was read after {seconds:.1f} s")
            assert seconds < 10


def test_control_records_at_the_end_are_no_lag(start, kafka, topic, committed) -> None:
    """They are committed too: what scales by Kafka's own count of the lag sees none either."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for commit in (True, False):  # offsets 0 to 2 and a control record, 4 to 6 aborted and another
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"alert", partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    with Receiver() as sink:
        source = start(sink)
        url = f"http://127.0.0.1:{source.env['STAMPEDE_PORT']}/metrics"
        eventually(lambda: len(sink.accepted) == 3)
        wanted = f'stampede_source_lag_events{{family="{topic}",partition="0"}} 0.0'

        def metrics() -> list[str]:
            with urllib.request.urlopen(url, timeout=5) as response:
                return response.read().decode().splitlines()

        eventually(lambda: wanted in metrics(), seconds=20)
        eventually(lambda: committed()[0] == 8, seconds=20)
        source.stop()
        start(sink)  # it has nothing to send
        producer.begin_transaction()
        producer.produce(topic, b"alert", partition=0)
        producer.commit_transaction(60)
        eventually(lambda: len(sink.accepted) == 4)
        eventually(lambda: committed()[0] == 10, seconds=20)
    assert [e.headers.get("ce-skippedoffsets") for e in sink.accepted] == [None] * 4


def created(admin: AdminClient, topic: str) -> bool:
    """Create a topic; False as long as the old one of this name is not gone."""
    try:
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    except KafkaException:
        return False
    return True


def described(admin: AdminClient, topic: str) -> bool:
    """Whether every broker knows the topic yet."""
    with suppress(KafkaException):
        admin.describe_topics(TopicCollection([topic]))[topic].result(30)
        return True
    return False


def test_bad_events_are_dead_letters_and_hold_nothing_up(start, produce, committed):
    made = produce(200)

    def answer(event: Received, times: int) -> Reply:
        match event.place[1] % 10:
            case 0:
                return 400, b"undecodable", {}
            case 1:
                return (500 if times < 3 else 204), b"", {}
            case 2:
                return (429 if times < 2 else 204), b"", {"retry-after": "0.1"}
        return 204, b"", {}

    with Receiver(answer) as sink, Receiver() as dead:
        start(sink, STAMPEDE_DEAD_LETTER_SINK=dead.url)
        eventually(lambda: len(sink.accepted) + len(dead.accepted) >= 200)
        eventually(lambda: committed() == ends(made))
    assert arrived(sink) | arrived(dead) == made
    assert {place for place in made if place[1] % 10 == 0} == set(arrived(dead))
    assert {event.headers["ce-knativeerrorcode"] for event in dead.accepted} == {"400"}


def test_a_sink_that_is_down_costs_neither_events_nor_partitions(start, produce, committed):
    """The sink is down for longer than Kafka lets a consumer go without polling."""
    made = produce(300)
    options = {"session.timeout.ms": "6000", "max.poll.interval.ms": "6000"}
    sink = Receiver()
    with Receiver() as dead:
        source = start(
            sink,
            STAMPEDE_DEAD_LETTER_SINK=dead.url,
            STAMPEDE_IN_FLIGHT="50",
            STAMPEDE_RETRIES="1",
            STAMPEDE_KAFKA_OPTIONS=json.dumps(options),
        )
        eventually(lambda: "sink is down" in source.tail())
        time.sleep(8)
        assert committed() == dict.fromkeys(range(PARTITIONS), 0)
        with sink:
            eventually(lambda: len(sink.accepted) >= 300)
            eventually(lambda: committed() == ends(made))
        assert not dead.requests
    assert arrived(sink) == made
    assert len(sink.accepted) == 300
    assert "sink is up again" in source.tail(100)
    assert "lost" not in source.tail(100).replace("none is lost", "")


def test_events_and_bytes_in_flight_are_bounded(start, produce):
    produce(300, size=1000)
    with Receiver() as sink:
        sink.delay = 0.5
        start(sink, STAMPEDE_IN_FLIGHT="30")
        eventually(lambda: len(sink.accepted) >= 300)
        assert 20 <= sink.most_at_once <= 30
    with Receiver() as sink:
        sink.delay = 0.5
        start(
            sink,
            STAMPEDE_GROUP="by-bytes" + str(sink.port),
            STAMPEDE_IN_FLIGHT_BYTES="100000",
        )
        eventually(lambda: len(sink.accepted) >= 300)
        assert 50 <= sink.most_at_once <= 100


def test_a_killed_source_starts_again_where_it_was(start, produce):
    made = produce(3000)
    with Receiver() as sink:
        sink.delay = 0.05
        first = start(sink, STAMPEDE_IN_FLIGHT="60")
        eventually(lambda: len(sink.accepted) >= 1500)
        first.kill()
        after = len(sink.accepted)
        assert after < 3000
        start(sink, STAMPEDE_IN_FLIGHT="60")
        eventually(lambda: len(arrived(sink)) == 3000)
    assert arrived(sink) == made
    assert len(sink.accepted) - 3000 < after, "it began from the beginning"


def test_a_second_source_takes_its_share_and_gives_it_back(start, produce):
    """This also holds while the first one waits for its sink, with its partitions paused."""
    made = produce(1500)
    with Receiver() as sink:
        sink.delay = 1.5
        first = start(sink, STAMPEDE_IN_FLIGHT="20")
        eventually(lambda: len(sink.accepted) >= 40)
        second = start(sink, STAMPEDE_IN_FLIGHT="20")
        eventually(lambda: "partitions given up" in first.tail(100))
        eventually(lambda: "partitions assigned" in second.tail())
        assert len(sink.accepted) < 1400, "the partitions changed hands only after all events"
        sink.delay = 0.1
        eventually(lambda: len(sink.accepted) >= 1400)
        second.stop()
        assert second.status == 0
        sink.delay = 0
        made |= produce(200)
        eventually(lambda: len(arrived(sink)) == 1700)
        # Events in flight arrive before the partitions change hands, or are sent again.
        assert len(sink.accepted) <= 1700 + 20
    assert arrived(sink) == made


def test_sigterm_waits_for_events_in_flight(start, produce, committed):
    made = produce(200)
    with Receiver() as sink:
        sink.delay = 1.0
        first = start(sink, STAMPEDE_IN_FLIGHT="40")
        eventually(lambda: len(sink.requests) >= 20)
        first.stop()
        assert first.status == 0
        taken = len(sink.requests)
        assert len(sink.accepted) == taken < 200
        assert sum(committed().values()) == taken
        sink.delay = 0
        start(sink)
        eventually(lambda: len(sink.accepted) == 200)
    assert arrived(sink) == made
    assert len(sink.requests) == 200, "an event came twice"


def test_sigterm_while_the_sink_is_down_ends_the_source_at_once(start, produce, committed):
    made = produce(100)
    sink = Receiver()
    source = start(sink)
    eventually(lambda: "sink is down" in source.tail())
    source.stop(seconds=15)  # less than any wait for the sink
    assert source.status == 0, "it was killed"
    assert sum(committed().values()) == 0
    with sink:
        start(sink)
        eventually(lambda: arrived(sink) == made)


def test_metrics_and_health(start, produce, topic):
    produce(100)
    with Receiver() as sink:
        source = start(sink)
        eventually(lambda: len(sink.accepted) == 100)
        port = source.env["STAMPEDE_PORT"]

        def page(path: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as response:
                return response.read().decode()

        lines = {
            f'stampede_source_lag_events{{family="{topic}",partition="0"}} 0.0',
            'stampede_source_events_total{outcome="accepted"} 100.0',
            "stampede_source_in_flight_events 0.0",
        }
        eventually(lambda: lines <= set(page("/metrics").splitlines()))
        assert page("/health/liveness") == "ok\n"
        eventually(lambda: readiness(source) == (200, "ok\n"))


@pytest.mark.anyio
async def test_a_bug_ends_the_source_and_commits_nothing_after_it(
    kafka, topic, produce, committed
) -> None:
    produce(20)

    class Buggy:
        down = False

        async def deliver(self, headers: Mapping[str, str], record: Record) -> None:
            if record.offset == 2:
                raise ZeroDivisionError("a bug")
            await asyncio.sleep(0)

    settings = Settings(kafka=kafka.bootstrap, topics=topic, group=topic)
    outlet = Outlet("cutouts", ["cutouts"], Buggy())
    consumer = Consumer(settings, [outlet], lambda record: {}, SourceHealth())
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(consumer.run(asyncio.Event()), 120)
    assert all(offset <= 2 for offset in committed().values())


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"K_SINK": ""}, "no sink: set K_SINK"),
        ({"STAMPEDE_TOPICS": ""}, "no topics: set STAMPEDE_TOPICS"),
        ({"K_SINK": "cutouts.default"}, "K_SINK is not an http"),
        ({"STAMPEDE_DEAD_LETTER_SINK": "x"}, "STAMPEDE_DEAD_LETTER_SINK is not an http"),
        ({"K_CE_OVERRIDES": "[1]"}, "K_CE_OVERRIDES is not of the form"),
        ({"STAMPEDE_KAFKA_OPTIONS": '{"no.such": "x"}'}, "No such configuration property"),
    ],
)
def test_a_wrong_setting_is_one_line(start, env, expected):
    source = start(Receiver(), **env)
    eventually(lambda: not source.running)
    assert source.status == 2
    (line,) = source.tail().splitlines()
    assert expected in line


def test_overrides() -> None:
    assert overrides("") == overrides("{}") == overrides('{"extensions": null}') == {}
    assert overrides('{"extensions": {"Site": 1}}') == {"site": "1"}
    with pytest.raises(SetupError):
        overrides("{")


def test_complete_settings_pass() -> None:
    check(Settings(sink="http://127.0.0.1:1/", topics="alerts"))


@pytest.mark.anyio
async def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = Settings(port=other.getsockname()[1])
        with pytest.raises(SetupError, match="cannot listen on"):
            async with status_server(settings):
                pass


@pytest.mark.anyio
async def test_a_client_of_the_status_server_does_not_delay_its_end() -> None:
    settings = Settings(port=free_port())
    handler = signal.getsignal(signal.SIGTERM)
    async with status_server(settings):
        reader, writer = await asyncio.open_connection("127.0.0.1", settings.port)
        writer.write(b"GET /health/liveness HTTP/1.1\r\nHost: here\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert signal.getsignal(signal.SIGTERM) is handler  # the source handles it
        begin = time.monotonic()
    assert time.monotonic() - begin < 10
    writer.close()


def test_a_time_in_microseconds_stops_nothing(start, produce, committed, topic, kafka) -> None:
    """A producer may give any CreateTime; only a broker that is asked to checks it."""
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(
                f"message.timestamp.{side}.max.ms",
                str(2**63 - 1),
                incremental_operation=AlterConfigOpType.SET,
            )
            for side in ("before", "after")
        ],
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)
    made = produce(4) | produce(4, timestamp=1_772_337_906_789_000) | produce(4)
    with Receiver() as sink:
        source = start(sink)
        eventually(lambda: arrived(sink) == made)
        eventually(lambda: committed() == ends(made))
        source.stop()
    assert source.status == 0
    times = ["ce-time" in event.headers for event in sink.requests if event.place[1] == 1]
    assert times == [False] * 4


def test_a_source_of_a_topic_that_is_not_there_is_not_ready_until_it_is(
    start, topic, kafka
) -> None:
    with Receiver() as sink:
        source = start(sink, STAMPEDE_TOPICS=f"{topic}-later")
        eventually(lambda: readiness(source) == (503, f"Kafka has no topic {topic}-later\n"))
        make_topics(kafka.bootstrap, [f"{topic}-later"], 1)
        eventually(lambda: readiness(source) == (200, "ok\n"))


def test_a_source_without_partitions_is_ready_if_others_have_them_all(start, kafka, topic) -> None:
    with Receiver() as sink:
        sources = [start(sink) for _ in range(PARTITIONS + 1)]
        eventually(lambda: all(readiness(source)[0] == 200 for source in sources))


def test_a_source_is_not_ready_while_kafka_is_down_and_recovers(start, tmp_path) -> None:
    with LocalKafka(tmp_path / "kafka", free_port(2)) as kafka, Receiver() as sink:
        make_topics(kafka.bootstrap, ["alerts"], 1)
        source = start(sink, STAMPEDE_KAFKA=kafka.bootstrap, STAMPEDE_TOPICS="alerts")
        eventually(lambda: readiness(source)[0] == 200)
        kafka.stop()
        begin = time.monotonic()
        eventually(lambda: readiness(source)[0] == 503)
        assert time.monotonic() - begin < 30
        eventually(lambda: "no connection" in readiness(source)[1])
        kafka.start()
        eventually(lambda: readiness(source)[0] == 200)


# The first commit, for which the source waits, begins when Kafka has gone.
LATE_COMMIT = """
import pathlib, time, confluent_kafka

class Consumer(confluent_kafka.Consumer):
    def commit(self, *args, **options):
        pathlib.Path({asked!r}).touch()
        while not pathlib.Path({gone!r}).exists():
            time.sleep(0.01)
        return super().commit(*args, **options)

confluent_kafka.Consumer = Consumer
"""


def test_a_commit_without_an_answer_does_not_hold_up_a_source(start, tmp_path) -> None:
    asked, gone = tmp_path / "asked", tmp_path / "gone"
    with LocalKafka(tmp_path / "kafka", free_port(2)) as kafka, Receiver() as sink:
        make_topics(kafka.bootstrap, ["alerts"], 1)
        before = LATE_COMMIT.format(asked=str(asked), gone=str(gone))
        source = start(sink, before, STAMPEDE_KAFKA=kafka.bootstrap, STAMPEDE_TOPICS="alerts")
        eventually(asked.exists)
        kafka.stop()
        gone.touch()
        waiting.eventually(lambda: "no connection" in readiness(source)[1], seconds=30)
        kafka.start()
        eventually(lambda: readiness(source)[0] == 200)


def test_lag_is_known_before_the_first_delivery(start, produce) -> None:
    made = produce(40)
    with Receiver(lambda event, times: (503, b"", {})) as sink:
        source = start(sink, STAMPEDE_IN_FLIGHT="1")
        url = f"http://127.0.0.1:{source.env['STAMPEDE_PORT']}/metrics"

        def lag() -> float:
            with suppress(OSError), urllib.request.urlopen(url, timeout=5) as response:
                lines = response.read().decode().splitlines()
                return sum(
                    float(line.split()[-1])
                    for line in lines
                    if line.startswith("stampede_source_lag_events{")
                )
            return -1

        eventually(lambda: lag() == len(made))
