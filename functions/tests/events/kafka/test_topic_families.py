"""A source follows topics that change their names, as ZTF and Rubin have them."""

import re
import time
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from stampede_local.kafka import LocalKafka, make_topics
from stampede_local.process import Process
from tests.support import waiting
from tests.support.events.kafka_messages import committed
from tests.support.events.receiver import Receiver
from tests.support.events.source_probes import readiness, samples

eventually = partial(waiting.eventually, seconds=60)
FIRST = date(2026, 6, 1)
NIGHTS, KEPT = 15, 7
MISSING = 4  # of this night there is no topic
EXPIRED = 200  # nights that Kafka still advertises
RECORDS = 20
# The source's clock is a file.
CLOCK = """
from datetime import date
from pathlib import Path
from stampede.config import topics
topics._today = lambda now: date.fromisoformat(Path({path!r}).read_text())
"""


def test_fifteen_nights_and_a_version_without_a_restart(
    start: Callable[..., Process], kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """A topic each night, one of them missing and the oldest expired; and Rubin's next version."""
    clock = tmp_path / "today"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    sent: set[bytes] = set()

    def night(day: date, programme: int = 1) -> str:
        return f"{topic}_{day:%Y%m%d}_programid{programme}"

    def send(name: str) -> None:
        bodies = [f"{name} {number}".encode() for number in range(RECORDS)]
        for body in bodies:
            producer.produce(name, body)
        assert producer.flush(30) == 0
        sent.update(bodies)

    expired = [night(FIRST - timedelta(20 + each)) for each in range(EXPIRED)]
    for made in admin.create_topics([NewTopic(name, 1) for name in expired]).values():
        made.result(60)
    clock.write_text(FIRST.isoformat())
    families = f"{topic}_{{YYYYMMDD}}_programid1,{topic}-v{{n}}"
    make_topics(kafka.bootstrap, [f"{topic}-v10"], 2)
    with Receiver() as sink:
        source = start(sink, before=CLOCK.format(path=str(clock)), STAMPEDE_TOPICS=families)
        eventually(lambda: readiness(source) == (200, "ok\n"))
        seconds: list[float] = []
        for number in range(NIGHTS):
            day = FIRST + timedelta(number)
            clock.write_text(day.isoformat())
            names = [] if number == MISSING else [night(day)]
            if number == NIGHTS // 2:
                names.append(f"{topic}-v11")
            if number == NIGHTS - 3:
                make_topics(kafka.bootstrap, [night(day, 2)], 1)  # nobody reads programme 2
            for name in names:
                make_topics(kafka.bootstrap, [name], 2)
                begin = time.monotonic()
                send(name)
                eventually(lambda: sent <= {event.body for event in sink.accepted})
                seconds.append(time.monotonic() - begin)
            old = night(day - timedelta(KEPT + 1))
            if number > KEPT and number - KEPT - 1 != MISSING:
                admin.delete_topics([old])[old].result(30)
        seconds.sort()
        print(f"the slowest topic was read {seconds[-1]:.1f} s after it was made")
        assert seconds[-3] < 10  # a busy machine may stand still for a moment
        assert {event.body for event in sink.accepted} == sent
        assert len(sink.accepted) == len(sent)
        last = night(FIRST + timedelta(NIGHTS - 1))
        eventually(lambda: sum(committed(kafka.bootstrap, topic, last, 2).values()) == RECORDS)
        eventually(lambda: samples(source)["stampede_source_ready"] == 1)
        seen = samples(source)
        families_seen = {
            match[1]
            for name in seen
            if (match := re.match(r'stampede_source_lag_events\{family="(.+?)",', name))
        }
        assert families_seen == set(families.split(","))
        unread = {name: value for name, value in seen.items() if "unread_topics{" in name}
        assert list(unread.values()) == [1.0]
        assert "programid2" in next(iter(unread))
        source.stop()
    assert source.status == 0
    assert not any(name in source.tail(100_000) for name in expired)


def test_a_source_is_ready_while_no_topic_is_made(
    start: Callable[..., Process], kafka: LocalKafka, topic: str
) -> None:
    """Between seasons there is none; then the first is read."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    with Receiver() as sink:
        source = start(sink, STAMPEDE_TOPICS=f"{topic}-v{{n}}")
        eventually(lambda: readiness(source) == (200, "ok\n"))
        make_topics(kafka.bootstrap, [f"{topic}-v1"], 1)
        producer.produce(f"{topic}-v1", b"first")
        assert producer.flush(30) == 0
        eventually(lambda: [event.body for event in sink.accepted] == [b"first"])
        source.stop()
    assert source.status == 0


def test_a_topic_is_read_to_its_end_though_it_leaves_the_window(
    start: Callable[..., Process], kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    clock, day = tmp_path / "today", FIRST
    clock.write_text(day.isoformat())
    name = f"{topic}_{day:%Y%m%d}"
    make_topics(kafka.bootstrap, [name], 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    bodies = {f"{number}".encode() for number in range(40)}
    for body in bodies:
        producer.produce(name, body)
    assert producer.flush(30) == 0
    down = True
    with Receiver(lambda event, times: (503, b"", {}) if down else (202, b"", {})) as sink:
        source = start(
            sink,
            before=CLOCK.format(path=str(clock)),
            STAMPEDE_TOPICS=f"{topic}_{{YYYYMMDD}}",
            STAMPEDE_IN_FLIGHT="4",
        )
        eventually(lambda: len(sink.requests) > 0)
        clock.write_text((day + timedelta(30)).isoformat())
        time.sleep(6)  # twice the time between two lists
        down = False
        eventually(lambda: bodies <= {event.body for event in sink.accepted})
        eventually(lambda: "given_up" in source.tail(1000) and name in source.tail(1000))
        eventually(lambda: sum(committed(kafka.bootstrap, topic, name, 2).values()) == 40)
        source.stop()
    assert source.status == 0
