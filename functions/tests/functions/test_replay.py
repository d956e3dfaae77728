"""A night sent again to a real Kafka: messages, keys, headers and timestamps as they came."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from stampede.clock import now_mjd
from stampede.errors import SetupError
from stampede.events.envelope import Envelope
from stampede.functions.replay import Night, Replayed, Unsendable
from stampede.settings import Settings
from stampede.store.open import open_objects
from tests.support import made_alerts
from tests.support.fits_files import source, ztf
from tests.support.stored_packets import store

NIGHT = int(now_mjd()) - 3
FIELDS = ("cutoutScience", "cutoutTemplate", "cutoutDifference")


def alert(candid: int, mjd: float = NIGHT + 0.25) -> bytes:
    images = {
        name: {"fileName": name, "stampData": ztf(source(seed=candid + seed))}
        for seed, name in enumerate(FIELDS)
    }
    candidate = made_alerts.ztf_record(candid)["candidate"] | {"jd": 2400000.5 + mjd}
    return made_alerts.ztf_alert(candid, candidate=candidate, **images)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=f"file://{tmp_path}/store", spool=tmp_path)


def envelope(number: int) -> Envelope:
    if not number % 3:
        return Envelope()
    time = f"2026-03-01T04:05:06.{number:03}Z"
    return Envelope(time, f"key {number}", f'{{"trace": "ü{number}"}}')


def test_the_alerts_of_a_night_come_in_the_order_of_the_topic(settings: Settings) -> None:
    messages = {n: alert(n, NIGHT + (0.9 - n / 100)) for n in range(1, 40)}
    offsets = list(messages)
    batches = [offsets[begin : begin + 10] for begin in range(0, 40, 10)]
    random.Random(1).shuffle(batches)
    for batch in batches:
        store(settings, [messages[n] for n in batch], batch[0], [envelope(n) for n in batch])
    store(settings, [alert(50, NIGHT + 1.5), alert(51, NIGHT - 0.5)], 100)  # other nights
    sent = list(Night(settings, NIGHT))
    assert [each.message for each in sent] == list(messages.values())
    first = sent[0]
    assert (first.key, first.headers) == (b"key 1", [("trace", "ü1".encode())])
    assert first.milliseconds == 1772337906001
    assert (sent[2].key, sent[2].headers, sent[2].milliseconds) == (None, [], None)


def test_a_resent_event_comes_once_and_a_repeated_message_as_often_as_it_came(
    settings: Settings,
) -> None:
    store(settings, [alert(1), alert(2)], 10)
    store(settings, [alert(2), alert(3)], 11)  # 11 was sent again: no answer had come
    store(settings, [alert(1)], 13)  # the survey sent it twice
    night = Night(settings, NIGHT)
    assert len(night) == 4
    assert [each.message for each in night] == [alert(1), alert(2), alert(3), alert(1)]


def test_only_one_survey(settings: Settings) -> None:
    rubin = made_alerts.rubin_record(1101, 3)
    rubin["diaSource"]["midpointMjdTai"] = NIGHT + 0.5
    lsst = made_alerts.confluent(rubin, 1101)
    store(settings, [alert(1), lsst])
    assert dict(Night(settings, NIGHT).counts) == {("ztf", "alerts"): 1, ("lsst", "alerts"): 1}
    assert [each.message for each in Night(settings, NIGHT, "lsst")] == [lsst]
    with pytest.raises(SetupError, match=f"no packets of survey lsst of the night MJD {NIGHT - 1}"):
        Night(settings, NIGHT - 1, "lsst")


def test_an_alert_that_is_not_whole_is_named_and_the_others_come(settings: Settings) -> None:
    store(settings, [alert(1)])
    [pack] = open_objects(settings).list("packs/")
    store(settings, [alert(2)], 1)
    open_objects(settings).delete(pack.key)
    bad, good = Night(settings, NIGHT)
    assert isinstance(bad, Unsendable)
    assert (bad.alert_id, bad.why) == (1, "its science cutout: it is damaged")
    assert isinstance(good, Replayed)
    assert good.message == alert(2)
    limited = settings.model_copy(update={"cutout_days": 1})
    assert next(iter(Night(limited, NIGHT))).why == "its science cutout: its retention is over"


def consumed(bootstrap: str, topic: str, count: int) -> list:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "replay-test"})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    deadline, found = time.monotonic() + 100, []
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count, timeout=1)
    consumer.close()
    return found


@pytest.fixture
def run(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs the command as a user does."""
    monkeypatch.setenv("STAMPEDE_STORE", settings.store)

    def call(*arguments: str, **options) -> subprocess.Popen:
        command = [sys.executable, "-m", "stampede", "replay", "--data", str(tmp_path / "none")]
        return subprocess.Popen(
            [*command, "--night", str(NIGHT), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    return call


@pytest.mark.integration
def test_a_night_in_kafka_is_as_it_was(settings: Settings, run, kafka, topic: str) -> None:
    messages = [alert(n) for n in range(1, 30)]
    store(settings, messages, 1, [envelope(n) for n in range(1, 30)])
    done = run("--to", f"kafka://{kafka.bootstrap}/{topic}")
    out, err = done.communicate(timeout=120)
    assert (done.returncode, err) == (0, "")
    assert f"night MJD {NIGHT}: 29 alerts of ztf from the topic alerts" in out
    assert "29 alerts" in out.splitlines()[-1]
    found = {each.value(): each for each in consumed(kafka.bootstrap, topic, 29)}
    assert found.keys() == set(messages)
    first, second, third = (found[message] for message in messages[:3])
    assert [each.key() for each in (first, second, third)] == [b"key 1", b"key 2", None]
    assert (first.headers(), third.headers()) == ([("trace", "ü1".encode())], None)
    assert [each.timestamp()[1] for each in (first, second)] == [1772337906001, 1772337906002]


@pytest.mark.integration
def test_ctrl_c_ends_a_replay_with_what_was_sent(settings: Settings, run, kafka, topic) -> None:
    for batch in range(8):
        store(settings, [alert(100 * batch + n) for n in range(1, 31)], 100 * batch)
    process = run("--to", f"kafka://{kafka.bootstrap}/{topic}")
    assert process.stdout is not None
    assert "240 alerts" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    sent = int(out.split(" alerts")[0])
    assert sent < 240
    assert len(consumed(kafka.bootstrap, topic, sent)) == sent


def test_a_dry_run_and_wrong_arguments(settings: Settings, run) -> None:
    store(settings, [alert(1)])
    dry = run("--dry-run")
    assert dry.communicate() == (f"night MJD {NIGHT}: 1 alerts of ztf from the topic alerts\n", "")
    for arguments, said in {
        (): "say where to send the alerts: --to kafka://HOST:PORT/TOPIC",
        ("--to", "127.0.0.1:9092/x"): "give kafka://HOST:PORT/TOPIC",
        ("--to", "kafka://127.0.0.1:9092"): "give kafka://HOST:PORT/TOPIC",
        ("--survey", "atlas", "--dry-run"): "no survey 'atlas': there are lsst, ztf",
        ("--survey", "lsst", "--dry-run"): "no packets of survey lsst of the night",
    }.items():
        process = run(*arguments)
        _, err = process.communicate()
        assert (process.returncode, said in err, err.count("\n")) == (2, True, 1), err
