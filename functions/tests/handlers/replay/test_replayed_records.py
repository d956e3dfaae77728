"""Keys and headers of any bytes: from a real Kafka, through source and functions, and back."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Message, Producer

from stampede.config.settings import Settings
from stampede.handlers.replay.messages import Replayed
from stampede.handlers.replay.night import Night
from stampede.runtime.clock import now_mjd
from stampede_local.kafka import LocalKafka
from stampede_local.ports import free_port
from stampede_local.process import Process
from tests.support import waiting
from tests.support.events.kafka_source import KafkaSource
from tests.support.store.stored_packets import ztf_with_images

pytestmark = pytest.mark.integration
eventually = partial(waiting.eventually, seconds=120)
NIGHT = int(now_mjd()) - 3
ALL_BYTES = bytes(range(256))


class Odd(NamedTuple):
    """Key and headers of a record."""

    key: bytes | None = None
    headers: list[tuple[str, str | bytes | None]] | None = None


ODD = {
    "nothing": Odd(),
    "text": Odd(b"ZTF18aaaaaaa", [("a", b"1"), ("schemaid", "ü".encode())]),
    "binary key": Odd(bytes.fromhex("000001 86ab ff00 0a0d") + ALL_BYTES),
    "empty key": Odd(b""),
    "key of 70 kB": Odd(b"k" * 70_000),
    "binary key of 70 kB": Odd(ALL_BYTES * 280),
    "binary header": Odd(b"key", [("h", ALL_BYTES)]),
    "empty header": Odd(None, [("h", b"")]),
    "null header": Odd(None, [("h", None)]),
    "doubled headers": Odd(None, [("h", b"1"), ("h", b"2"), ("h", None), ("h", b"1")]),
    "order of headers": Odd(None, [("b", b"1"), ("a", b"2")]),
    "names": Odd(None, [("Schema-Id", b"1"), ("schema-id", b"2"), ("", b"3"), ("é", b"4")]),
    "a name of no letters": Odd(None, [("---", b"1"), ("\u2603", b"2")]),
    "a value of 200 kB": Odd(None, [("h", ALL_BYTES * 800)]),
    "a value of 200 kB and a key of 70": Odd(ALL_BYTES * 280, [("h", b"x" * 200_000)]),
    "300 headers": Odd(None, [(f"h{number}", b"%d" % number) for number in range(300)]),
    "content type": Odd(None, [("content-type", b"avro/binary")]),
    "odd content type": Odd(None, [("Content-Type", b"Avro/Binary\n")]),
    "a traceparent": Odd(None, [("traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01")]),
}
MESSAGES = {name: ztf_with_images(n, NIGHT + 0.25) for n, name in enumerate(ODD, 1)}


def produce(kafka: LocalKafka, topic: str, messages: dict[str, bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for name, message in messages.items():
        odd = ODD[name]
        producer.produce(topic, message, key=odd.key, headers=odd.headers, partition=0)
    assert producer.flush(60) == 0


def consumed(kafka: LocalKafka, topic: str, count: int) -> dict[bytes, Message]:
    from tests.handlers.replay.test_night import consumed

    return {each.value(): each for each in consumed(kafka.bootstrap, topic, count)}


@pytest.fixture
def source(kafka: LocalKafka, topic: str, tmp_path: Path):
    """Starts a source of the topic for a sink."""
    started: list[Process] = []

    def start(sink: str, letters: str) -> None:
        env = {
            "K_SINK": sink,
            "STAMPEDE_DEAD_LETTER_SINK": letters,
            "STAMPEDE_KAFKA": kafka.bootstrap,
            "STAMPEDE_TOPICS": topic,
            "STAMPEDE_GROUP": f"{topic}-{len(started)}",
            "STAMPEDE_PORT": str(free_port()),
            "STAMPEDE_BACKOFF_SECONDS": "0.05",
        }
        log = tmp_path / f"source-{len(started)}.log"
        command = [sys.executable, "-m", "stampede", "serve", "source"]
        started.append(Process("source", command, log, env))
        started[-1].start()

    yield start
    for process in started:
        process.stop()
        print(process.tail(40))


def command(settings: Settings, *arguments: str) -> subprocess.CompletedProcess:
    """Run `stampede` as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "stampede", *arguments],
        capture_output=True,
        text=True,
        timeout=150,
        env=os.environ | {"STAMPEDE_STORE": settings.store},
    )


def replay(settings: Settings, kafka: LocalKafka, topic: str) -> subprocess.CompletedProcess:
    to = f"kafka://{kafka.bootstrap}/{topic}-again"
    return command(settings, "replay", "--night", str(NIGHT), "--to", to, "--ignore-retention")


def is_stored(settings: Settings, count: int) -> bool:
    try:
        return len(Night(settings, NIGHT)) == count
    except Exception:
        return False


@pytest.mark.parametrize("way", ["source", "from kafka"])
def test_keys_and_headers_come_back_byte_for_byte(
    kafka: LocalKafka, topic: str, serve: Callable, source: Callable, way: str
) -> None:
    letters = serve("deadletters")
    produce(kafka, topic, MESSAGES)
    if way == "source":
        functions = [serve(name) for name in ("cutouts", "lightcurves")]
        for function in functions:
            source(function.url, f"{letters.url}/cutouts")
    else:
        env = {"FROM_KAFKA": True, "KAFKA": kafka.bootstrap, "TOPICS": topic}
        env |= {"DEAD_LETTER_SINK": f"{letters.url}/cutouts", "GROUP": topic}
        functions = [
            serve(name, **(env | {"GROUP": topic + name})) for name in ("cutouts", "lightcurves")
        ]
    settings = functions[0].settings
    eventually(lambda: is_stored(settings, len(ODD)))
    eventually(
        lambda: all(
            isinstance(each, Replayed) and each.lost == "" for each in Night(settings, NIGHT)
        )
    )

    done = replay(settings, kafka, topic)
    assert (done.returncode, done.stderr) == (0, "")
    sent, again = (consumed(kafka, name, len(ODD)) for name in (topic, f"{topic}-again"))
    assert sent.keys() == again.keys() == set(MESSAGES.values())
    for name, message in MESSAGES.items():
        first, second = sent[message], again[message]
        assert second.key() == first.key() == ODD[name].key
        assert second.headers() == first.headers()
        assert (first.headers() or None) == ODD[name].headers
        assert second.timestamp() == first.timestamp()


def test_dead_letters_keep_keys_and_headers(
    kafka: LocalKafka, topic: str, serve: Callable, source: Callable
) -> None:
    """They are refused for their size first, and then sent again to functions that take more."""
    letters = serve("deadletters")
    names = ("cutouts", "lightcurves")
    small = {name: serve(name, MAX_ALERT_BYTES=1000) for name in names}
    produce(kafka, topic, MESSAGES)
    tables = ("cutouts", "detections")
    for function, table in zip(small.values(), tables, strict=True):
        source(function.url, f"{letters.url}/{table}")
    settings = letters.settings

    def listed() -> int:
        done = command(settings, "deadletters", "list", "--json")
        return len(done.stdout.splitlines())

    eventually(lambda: listed() == 2 * len(ODD))
    for table, name in zip(tables, names, strict=True):
        sink = f"--sink={serve(name).url}"
        done = command(settings, "deadletters", "replay", "--all", "--table", table, sink)
        assert done.returncode == 0, done.stdout + done.stderr
    found = {each.message: each for each in Night(settings, NIGHT) if isinstance(each, Replayed)}
    assert found.keys() == set(MESSAGES.values())
    for name, message in MESSAGES.items():
        assert found[message].key == ODD[name].key
        assert list(found[message].headers) == (ODD[name].headers or [])
        assert found[message].lost == ""


def test_what_a_kafka_source_does_not_tell_is_named(
    kafka: LocalKafka, topic: str, serve: Callable
) -> None:
    """Knative's own has text alone."""
    functions = {name: serve(name) for name in ("cutouts", "lightcurves", "deadletters")}
    settings = functions["cutouts"].settings
    names = ["nothing", "text", "binary key", "null header", "binary header"]
    produce(kafka, topic, {name: MESSAGES[name] for name in names})
    for function, table in (("cutouts", "cutouts"), ("lightcurves", "detections")):
        sink, letters = functions[function].url, f"{functions['deadletters'].url}/{table}"
        with KafkaSource(kafka.bootstrap, topic, topic + function, sink, letters) as knative:
            eventually(lambda knative=knative: knative.finished == len(names))
    done = replay(settings, kafka, topic)
    assert done.returncode == 1
    ids = {name: number for number, name in enumerate(ODD, 1)}
    for name, what in (("binary key", "its key"), ("binary header", "its header h")):
        lost = f"alert {ids[name]} is sent without bytes that are no UTF-8: {what}"
        assert lost in done.stderr.splitlines()
    for name in ("nothing", "text", "null header"):
        assert f"alert {ids[name]} is sent without whatever of its key" in done.stderr
    assert "sent without a part of key or headers: 2 alerts" in done.stderr
    assert "3 alerts sent with the keys and headers of their events" in done.stderr
    assert len(consumed(kafka, f"{topic}-again", len(names))) == len(names)
