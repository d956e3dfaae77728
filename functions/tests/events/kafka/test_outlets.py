"""One source for both tables, between a real Kafka and two real HTTP servers."""

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.events.kafka.topics import KafkaTopics
from stampede_local.kafka import LocalKafka
from stampede_local.process import Process
from tests.handlers.audit.test_audit import commit, make_anew, topic_id
from tests.support import waiting
from tests.support.events.receiver import PARTITIONS, Received, Receiver, Reply, arrived

eventually = partial(waiting.eventually, seconds=120)
IN_FLIGHT = 40
DETACH_SECONDS = 3.0
# Writes into the file FETCHED how many bytes the group's client has had from Kafka.
COUNTING = """
import json, os
from stampede.events.kafka.source_health import SourceHealth
told = SourceHealth.told
def counted(self, statistics):
    with open(os.environ["FETCHED"], "w") as out:
        out.write(str(json.loads(statistics)["rxmsg_bytes"]))
    told(self, statistics)
SourceHealth.told = counted
"""

Start = Callable[..., Process]


def of_both(cutouts: Receiver, detections: Receiver) -> dict[str, str]:
    """The settings of a source of two functions."""
    return {
        "STAMPEDE_SINKS": json.dumps({"cutouts": cutouts.url, "detections": detections.url}),
        "STAMPEDE_DETACH_SECONDS": str(DETACH_SECONDS),
        "STAMPEDE_IN_FLIGHT": str(IN_FLIGHT),
    }


def detached(source: Process, table: str = "cutouts") -> float | None:
    """How many partitions of a source a table lags behind in; None while it does not say."""
    url = f"http://127.0.0.1:{source.env['STAMPEDE_PORT']}/metrics"
    name = f'stampede_source_detached_partitions{{table="{table}"}} '
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as response:
        for line in response.read().decode().splitlines():
            if line.startswith(name):
                return float(line.removeprefix(name))
    return None


def twice(sink: Receiver) -> int:
    """How many events a sink accepted again."""
    return sum(times - 1 for times in Counter(each.place for each in sink.accepted).values())


def longest_pause(sink: Receiver, count: int) -> float:
    """Wait until a sink has accepted so many events; the longest time without one."""
    eventually(lambda: len(sink.accepted) > 0)
    last, longest, before = time.monotonic(), 0.0, 0
    while (number := len(sink.accepted)) < count:
        now = time.monotonic()
        longest = max(longest, now - last)
        if number > before:
            last, before = now, number
        assert now - last < 120
        time.sleep(0.01)
    return longest


def ends(made: dict) -> dict[int, int]:
    after = dict.fromkeys(range(PARTITIONS), 0)
    for partition, offset in made:
        after[partition] = max(after[partition], offset + 1)
    return after


def positions(kafka: LocalKafka, topic: str) -> dict[str, dict[int, int | None]]:
    """The offsets below which each table has everything, as the ledger and `doctor` ask."""
    settings = Settings(kafka=kafka.bootstrap)
    with KafkaTopics(settings) as topics:
        partitions = [(topic, number) for number in range(PARTITIONS)]
        found = topics.committed(topic, partitions, topics.topic_ids([topic]))
    return {
        table: {number: offset for (_, number), offset in each.items()}
        for table, each in found.items()
    }


def test_an_alert_is_fetched_once_for_both_tables(
    start: Start, produce, committed, tmp_path: Path
) -> None:
    made = produce(600, size=20_000)
    fetched = tmp_path / "fetched"
    with Receiver() as cutouts, Receiver() as detections:
        # All fit at once: a pause would discard what the client has fetched ahead.
        both = of_both(cutouts, detections) | {"STAMPEDE_IN_FLIGHT": "700"}
        source = start(cutouts, COUNTING, **both, FETCHED=str(fetched))
        eventually(lambda: len(cutouts.accepted) == len(detections.accepted) == 600)
        eventually(lambda: committed() == ends(made))
        assert arrived(cutouts) == arrived(detections) == made
        assert (len(cutouts.accepted), len(detections.accepted)) == (600, 600)
        sent = sum(map(len, made.values()))
        eventually(lambda: fetched.exists() and int(fetched.read_text()) >= sent)
        time.sleep(4)  # the client reports every 2 s
        source.stop()
    ratio = int(fetched.read_text()) / sent
    print(f"{ratio:.3f} bytes from Kafka for each byte of the alerts")
    assert ratio < 1.02
    headers = {each.place: each.headers["ce-source"] for each in cutouts.accepted}
    assert headers == {each.place: each.headers["ce-source"] for each in detections.accepted}


@pytest.mark.parametrize("answers", [False, True], ids=["silent", "503"])
def test_a_function_that_is_down_holds_the_other_for_a_bounded_time(
    start: Start, produce, committed, kafka, topic, answers: bool
) -> None:
    """It catches up later, nothing is missing, and nothing comes twice."""
    up = False

    def answer(event: Received, times: int) -> Reply:
        return (204 if up else 503), b"", {}

    cutouts = Receiver(answer)
    with Receiver() as detections:
        if answers:
            cutouts.__enter__()
        source = start(detections, **of_both(cutouts, detections))
        made = produce(600)
        seconds = longest_pause(detections, len(made))
        print(f"the other function got no alert for {seconds:.1f} s")
        assert len(cutouts.accepted) == 0
        assert seconds < DETACH_SECONDS + 10
        eventually(lambda: committed() == ends(made))
        eventually(lambda: detached(source) == PARTITIONS)
        lag = positions(kafka, topic)
        assert lag["detections"] == ends(made)
        assert sum(filter(None, lag["cutouts"].values())) == 0, "the ledger would call it missing"
        begin = time.monotonic()
        made |= produce(400)
        eventually(lambda: len(arrived(detections)) == len(made))
        print(f"400 more took {time.monotonic() - begin:.1f} s")
        up = True
        if not answers:
            cutouts.__enter__()
        eventually(lambda: len(arrived(cutouts)) == len(made))
        eventually(lambda: detached(source) == 0)
        made |= produce(400)
        eventually(lambda: committed() == ends(made))
        assert arrived(cutouts) == arrived(detections) == made
        assert positions(kafka, topic)["cutouts"] == ends(made)
        assert (twice(cutouts), twice(detections)) == (0, 0)
        source.stop()
        assert source.status == 0
    cutouts.__exit__()


def test_an_outage_of_both_leaves_none_behind(start: Start, produce, committed) -> None:
    """As when the store is down: then nothing is fetched twice."""
    up = False

    def answer(event: Received, times: int) -> Reply:
        return (204 if up else 503), b"", {}

    with Receiver(answer) as cutouts, Receiver(answer) as detections:
        # Longer than from probe to probe of a sink: one is back before the other.
        both = of_both(cutouts, detections) | {"STAMPEDE_DETACH_SECONDS": "8"}
        source = start(cutouts, **both)
        made = produce(400)
        eventually(lambda: bool(cutouts.requests and detections.requests))
        time.sleep(15)
        assert detached(source) == detached(source, "detections") == 0
        up = True
        eventually(lambda: len(arrived(cutouts)) == len(arrived(detections)) == len(made))
        eventually(lambda: committed() == ends(made))
        assert "takes no events" not in source.tail(400)
        assert (twice(cutouts), twice(detections)) == (0, 0)


def test_both_meet_while_alerts_come(start: Start, produce, committed) -> None:
    """The records at which the outlet is attached again are delivered once."""
    made = {}
    with Receiver() as detections:
        cutouts = Receiver()
        source = start(detections, **of_both(cutouts, detections))
        made |= produce(400)
        eventually(lambda: len(arrived(detections)) == len(made))
        with cutouts:
            cutouts.delay = 0.01
            for _ in range(40):
                made |= produce(40)
                time.sleep(0.05)
            eventually(lambda: len(arrived(cutouts)) == len(made))
            eventually(lambda: detached(source) == 0)
            eventually(lambda: committed() == ends(made))
            assert arrived(cutouts) == arrived(detections) == made
            print(f"twice: {twice(cutouts)}, {twice(detections)}")
            assert (twice(cutouts), twice(detections)) == (0, 0)


def test_a_source_is_killed_while_a_function_is_left_behind(start: Start, produce) -> None:
    """The next source goes on from what is noted in the commits."""
    with Receiver() as detections:
        cutouts = Receiver()
        settings = of_both(cutouts, detections)
        source = start(detections, **settings)
        made = produce(600)
        eventually(lambda: len(arrived(detections)) == len(made))
        eventually(lambda: detached(source) == PARTITIONS)
        time.sleep(2)
        source.kill()
        made |= produce(200)
        source = start(detections, **settings)
        eventually(lambda: len(arrived(detections)) == len(made))
        eventually(lambda: detached(source) == PARTITIONS)
        with cutouts:
            eventually(lambda: len(arrived(cutouts)) == len(made))
            eventually(lambda: detached(source) == 0)
        assert arrived(cutouts) == arrived(detections) == made
        print(f"twice: {twice(cutouts)}, {twice(detections)}")
        assert twice(cutouts) == 0
        assert twice(detections) <= IN_FLIGHT


def test_partitions_change_hands_while_a_function_is_left_behind(start: Start, produce) -> None:
    with Receiver() as detections:
        cutouts = Receiver()
        settings = of_both(cutouts, detections)
        first = start(detections, **settings)
        made = produce(600)
        eventually(lambda: len(arrived(detections)) == len(made))
        eventually(lambda: detached(first) == PARTITIONS)
        second = start(detections, **settings)
        eventually(lambda: detached(first) == detached(second) == PARTITIONS / 2)
        made |= produce(200)
        eventually(lambda: len(arrived(detections)) == len(made))
        first.stop()
        assert first.status == 0
        eventually(lambda: detached(second) == PARTITIONS)
        with cutouts:
            eventually(lambda: len(arrived(cutouts)) == len(made))
            eventually(lambda: detached(second) == 0)
        assert arrived(cutouts) == arrived(detections) == made
        assert (twice(cutouts), twice(detections)) == (0, 0)


def test_partitions_change_hands_while_a_function_catches_up(start: Start, produce) -> None:
    with Receiver() as detections:
        cutouts = Receiver()
        settings = of_both(cutouts, detections)
        first = start(detections, **settings)
        made = produce(2000)
        eventually(lambda: len(arrived(detections)) == len(made))
        cutouts.delay = 0.1
        with cutouts:
            eventually(lambda: len(arrived(cutouts)) > 300)
            second = start(detections, **settings)
            eventually(lambda: "partitions assigned" in second.tail(200))
            first.stop()
            cutouts.delay = 0.0
            eventually(lambda: len(arrived(cutouts)) == len(made))
            eventually(lambda: detached(second) == 0)
        assert arrived(cutouts) == arrived(detections) == made
        print(f"twice: {twice(cutouts)}, {twice(detections)}")
        assert twice(cutouts) <= 3 * IN_FLIGHT
        assert twice(detections) == 0


@pytest.mark.parametrize("refusing", ["cutouts", "detections"])
def test_what_one_function_refuses_is_a_dead_letter_of_its_table(
    start: Start, produce, committed, refusing: str
) -> None:
    made = produce(40)
    bad = sorted(made)[7]

    def refuse(event: Received, times: int) -> Reply:
        return (400 if event.place == bad else 204), b"", {}

    with Receiver() as cutouts, Receiver() as detections, Receiver() as letters:
        sinks = {"cutouts": cutouts, "detections": detections}
        sinks[refusing].answer = refuse
        base = letters.url.rstrip("/")
        source = start(cutouts, **of_both(cutouts, detections), STAMPEDE_DEAD_LETTER_SINK=base)
        eventually(lambda: committed() == ends(made))
        source.stop()
        [letter] = letters.accepted
        assert letter.place == bad
        assert letter.path == f"/{refusing}"
        assert {name: len(sink.accepted) for name, sink in sinks.items()} == {
            name: 39 if name == refusing else 40 for name in sinks
        }


def test_an_event_that_one_function_never_takes_does_not_leave_that_one_behind(
    start: Start, produce, committed
) -> None:
    """Without a place for dead letters it holds the commit, as it always did; others pass."""
    made = produce(800)
    bad = sorted(made)[7]

    def refuse(event: Received, times: int) -> Reply:
        return (400 if event.place == bad else 204), b"", {}

    with Receiver(refuse) as cutouts, Receiver() as detections:
        source = start(cutouts, **of_both(cutouts, detections))
        eventually(lambda: len(arrived(detections)) == 800)
        eventually(lambda: len(arrived(cutouts)) == 799)
        time.sleep(DETACH_SECONDS + 2)
        assert detached(source) == 0
        assert committed()[bad[0]] == bad[1]
        source.stop()


def test_the_first_start_goes_on_from_the_groups_of_both_functions(
    start: Start, produce, kafka, topic, committed
) -> None:
    settings = Settings(kafka=kafka.bootstrap, group=topic)
    made = produce(400)
    note = f"topicid={topic_id(settings, topic)}"
    # Partition 2 was begun for one table only, and 3 for none.
    cut, detected = {0: 60, 1: 90, 2: 10}, {0: 80, 1: 20}
    commit(settings, topic, cut, note, group=f"{topic}-cutouts")
    commit(settings, topic, detected, note, group=f"{topic}-lightcurves")
    wanted = [
        {at: body for at, body in made.items() if at[1] >= begin.get(at[0], 0)}
        for begin in (cut, detected)
    ]
    with Receiver() as cutouts, Receiver() as detections:
        source = start(cutouts, **of_both(cutouts, detections))
        eventually(lambda: [len(arrived(cutouts)), len(arrived(detections))] == [*map(len, wanted)])
        eventually(lambda: committed() == ends(made))
        eventually(lambda: detached(source) == detached(source, "detections") == 0)
        source.stop()
    assert [arrived(cutouts), arrived(detections)] == wanted
    assert (twice(cutouts), twice(detections)) == (0, 0)


def test_old_groups_of_an_earlier_topic_say_nothing(
    start: Start, produce, kafka, topic, committed
) -> None:
    made = produce(40)
    settings = Settings(kafka=kafka.bootstrap, group=topic)
    for function in ("cutouts", "lightcurves"):
        note = "topicid=kWq0Yv1nQ3uZb8m2rXoXkA"
        commit(settings, topic, {0: 5}, note, group=f"{topic}-{function}")
    with Receiver() as cutouts, Receiver() as detections:
        source = start(cutouts, **of_both(cutouts, detections))
        eventually(lambda: committed() == ends(made))
        source.stop()
    assert arrived(cutouts) == arrived(detections) == made


def test_a_topic_is_made_anew_while_a_function_is_left_behind(
    start: Start, produce, kafka, topic
) -> None:
    """What that function lacked is gone with the topic; nothing has the id of the other one."""
    settings = Settings(kafka=kafka.bootstrap, group=topic)
    with Receiver() as detections:
        cutouts = Receiver()
        source = start(detections, **of_both(cutouts, detections))
        old = produce(600)
        eventually(lambda: len(arrived(detections)) == len(old))
        eventually(lambda: detached(source) == PARTITIONS)
        first = topic_id(settings, topic)
        make_anew(settings, topic)
        second = topic_id(settings, topic)
        new = {}
        for _ in range(3):
            new |= produce(100)
            time.sleep(1)
        of_new = partial(of_topic, topic_id=second)
        eventually(lambda: of_new(detections) == new)
        with cutouts:
            eventually(lambda: of_new(cutouts) == new)
            eventually(lambda: detached(source) == 0)
            source.stop()
        for sink in (cutouts, detections):
            assert of_topic(sink, first).items() <= old.items(), "an alert under the wrong id"
            assert {each.headers["ce-topicid"] for each in sink.accepted} <= {first, second}


def of_topic(sink: Receiver, topic_id: str) -> dict:
    """The bodies of accepted events of a topic with this id."""
    return {e.place: e.body for e in sink.accepted if e.headers["ce-topicid"] == topic_id}


def test_one_function_for_both_tables_takes_over_from_two(
    start: Start, produce, kafka, topic, committed
) -> None:
    """What one of the tables lacks is noted in the commits, so the one begins there."""
    with Receiver() as detections:
        cutouts = Receiver()
        source = start(detections, **of_both(cutouts, detections))
        made = produce(400)
        eventually(lambda: len(arrived(detections)) == len(made))
        eventually(lambda: detached(source) == PARTITIONS)
        source.stop()
    with Receiver() as alerts:
        source = start(alerts)
        eventually(lambda: len(arrived(alerts)) == len(made))
        eventually(lambda: committed() == ends(made))
        source.stop()
    assert arrived(alerts) == made
    assert positions(kafka, topic)["cutouts"] == ends(made)
