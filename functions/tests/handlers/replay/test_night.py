"""A night sent again to a real Kafka: messages, keys, headers and timestamps as they came."""

import hashlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from stampede.config.settings import Settings
from stampede.errors import SetupError, StoreDown
from stampede.events.cloudevents.envelope import Envelope
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves, packet_storer
from stampede.handlers.replay.kafka_sender import send
from stampede.handlers.replay.messages import Replayed, Unsendable
from stampede.handlers.replay.night import Night
from stampede.runtime.clock import now_mjd
from stampede.store.open import open_objects
from tests.support.alerts import made_alerts
from tests.support.alerts.fits_files import source, ztf
from tests.support.store.stored_packets import FIELDS, TOPIC, store, ztf_with_images

NIGHT = int(now_mjd()) - 3


def alert(candid: int, mjd: float = NIGHT + 0.25) -> bytes:
    return ztf_with_images(candid, mjd)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=f"file://{tmp_path}/store", spool=tmp_path)


def envelope(number: int) -> Envelope:
    if not number % 3:
        return Envelope(record="")
    time = f"2026-03-01T04:05:06.{number:03}Z"
    return Envelope(time, f"key {number}", f'{{"trace": "ü{number}"}}', "")


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


def test_each_version_of_an_alert_comes(settings: Settings) -> None:
    """Whichever version readers get: the images of each are those of its message."""
    versions = [with_images(1, seed) for seed in (10, 20, 30)]
    for number, message in enumerate(versions):
        store(settings, [message], number)
    assert sorted(replayed(settings)) == sorted(versions)


def with_images(candid: int, seed: int) -> bytes:
    """`alert` of this id with images of its own."""
    candidate = made_alerts.ztf_record(candid)["candidate"] | {"jd": 2400000.5 + NIGHT + 0.25}
    images = {
        name: {"fileName": name, "stampData": ztf(source(seed=seed + number))}
        for number, name in enumerate(FIELDS)
    }
    return made_alerts.ztf_alert(candid, candidate=candidate, **images)


def at(second: int) -> Envelope:
    """A record of that second."""
    return Envelope(f"2026-03-01T04:05:{second:02}Z")


def replayed(settings: Settings) -> list[bytes]:
    return [each.message for each in Night(settings, NIGHT) if isinstance(each, Replayed)]


def test_the_partitions_of_a_topic_come_as_their_alerts_came(settings: Settings) -> None:
    batches = [(partition, second) for second in (0, 10, 20) for partition in (1, 0)]
    messages = []
    for candid, (partition, second) in enumerate(batches, 1):
        messages.append(alert(candid))
        store(settings, messages[-1:], second, [at(second + (not partition))], partition=partition)
    assert replayed(settings) == messages


def test_a_message_delivered_again_late_does_not_bring_its_batch_forward(
    settings: Settings,
) -> None:
    early = [alert(n) for n in range(1, 5)]
    late = [alert(n) for n in range(5, 9)]
    for envelopes in ([at(n) for n in range(9)], []):
        again = settings.model_copy(update={"store": f"{settings.store}-{len(envelopes)}"})
        store(again, early, 1, envelopes[1:5])
        store(again, late, 5, envelopes[5:])
        # Offset 0 was delivered late, with two alerts after those.
        last = [alert(20), alert(21)]
        store_at(
            again, [alert(9), *last], [0, 30, 31], [at(0), at(30), at(31)] if envelopes else []
        )
        assert replayed(again) == [*early, *late, alert(9), *last]


def store_at(
    settings: Settings, messages: list[bytes], offsets: list[int], envelopes: list
) -> None:
    """Store messages as one batch with those offsets."""
    positions = [Position(TOPIC, 0, offset) for offset in offsets]
    for function in (cutouts, lightcurves):
        storer = function.make_batch_storer(settings)
        stored = storer(Batch([memoryview(m) for m in messages], positions, envelopes=envelopes))
        assert stored.outcomes == [None] * len(messages)


@pytest.mark.parametrize(
    "time",
    [
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59.999-23:59",
        "1969-12-31T23:59:59Z",
        "2999-01-01T00:00:00Z",  # Kafka would refuse it
    ],
)
def test_a_time_that_no_record_has_is_none(settings: Settings, time: str) -> None:
    store(settings, [alert(1), alert(2)], 1, [Envelope(time), at(7)])
    first, second = Night(settings, NIGHT)
    assert sorted([first.milliseconds or 0, second.milliseconds or 0]) == [0, 1772337907000]


@pytest.mark.parametrize("moment", [-62_135_683_140_000, 253_402_387_139_999])
def test_such_a_time_that_is_stored_already_is_none(
    settings: Settings, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = pa.array([moment], pa.timestamp("ms", "UTC"))
    with_envelopes = packet_storer._with_envelopes

    def stored(rows: pa.Table, batch: Batch) -> pa.Table:
        rows = with_envelopes(rows, batch)
        return rows.set_column(rows.column_names.index("time"), "time", column)

    monkeypatch.setattr(packet_storer, "_with_envelopes", stored)
    store(settings, [alert(1)])
    [only] = Night(settings, NIGHT)
    assert (only.message, only.milliseconds) == (alert(1), None)


def unmixed(number: int) -> int:
    """The inverse of MurmurHash3's finalizer."""
    for factor in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
        number ^= number >> 33
        number = number * pow(factor, -1, 2**64) % 2**64
    return number ^ number >> 33


def mixed(number: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        number = (number ^ number >> 33) * factor % 2**64
    return number ^ number >> 33


def test_no_chosen_offset_hides_another_alert(settings: Settings) -> None:
    """Without a secret, an alert at a computed offset had the number of another one."""
    topic = int.from_bytes(hashlib.blake2b(b"alerts", digest_size=8).digest())
    message = alert(1)
    number = mixed(mixed(mixed(topic ^ 1) ^ 0) ^ 10) ^ made_alerts.record_crc32(message)
    for candid in range(2, 100):
        forged = alert(candid)
        offset = unmixed(number ^ made_alerts.record_crc32(forged)) ^ mixed(mixed(topic ^ candid))
        if offset < 2**62:
            break
    store(settings, [message], 10)
    store(settings, [forged], offset)
    assert replayed(settings) == [message, forged]


def test_a_resent_event_comes_once_and_a_repeated_message_as_often_as_it_came(
    settings: Settings,
) -> None:
    store(settings, [alert(1), alert(2)], 10)
    store(settings, [alert(2), alert(3)], 11)  # 11 was sent again: no response had come
    store(settings, [alert(1)], 13)  # the survey sent it twice
    night = Night(settings, NIGHT)
    assert len(night) == 4
    assert [each.message for each in night] == [alert(1), alert(2), alert(3), alert(1)]


def test_only_one_survey(settings: Settings) -> None:
    rubin = made_alerts.rubin_record(1101, 3)
    rubin["diaSource"]["midpointMjdTai"] = NIGHT + 0.5
    lsst = made_alerts.confluent(rubin, 1101)
    store(settings, [alert(1), lsst])
    assert dict(Night(settings, NIGHT).plan.counts) == {("ztf", "alerts"): 1, ("lsst", "alerts"): 1}
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


def damage(settings: Settings, pack: str, at: int) -> None:
    """Change a byte of a pack; `at` counts from its end if it is negative."""
    path = Path(settings.store.removeprefix("file://")) / pack
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def packs_of(settings: Settings) -> list[str]:
    return [info.key for info in open_objects(settings).list("packets/")]


@pytest.mark.parametrize("gone", [True, False])
def test_a_pack_that_cannot_be_read_costs_only_its_own_alerts(
    settings: Settings, gone: bool
) -> None:
    store(settings, [alert(1), alert(2)], 1, [at(1), at(2)])
    [bad] = packs_of(settings)
    store(settings, [alert(2), alert(3)], 2, [at(2), at(3)])  # 2 was sent again
    store(settings, [alert(4)], 4, [at(4)])
    night = Night(settings, NIGHT)
    if gone:
        open_objects(settings).delete(bad)
    else:
        damage(settings, bad, 40)
    two, one, three, four = night
    assert [two.message, three.message, four.message] == [alert(2), alert(3), alert(4)]
    assert isinstance(one, Unsendable)
    assert one.alert_id == 1
    reason = f"its packet: the store has no object {bad}" if gone else f"its packet: {bad} is dam"
    assert one.why.startswith(reason)


def test_a_pack_of_which_nobody_knows_the_alerts_is_named(settings: Settings) -> None:
    store(settings, [alert(1)], 1)
    [bad] = packs_of(settings)
    damage(settings, bad, -1)
    store(settings, [alert(2)], 2)
    unknown, two = Night(settings, NIGHT)
    assert isinstance(unknown, Unsendable)
    assert unknown.alert_id is None
    assert unknown.why.startswith(f"{bad} is cut short")
    assert isinstance(two, Replayed)


def consumed(bootstrap: str, topic: str, count: int, seconds: float = 100) -> list:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "replay-test"})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    deadline, found = time.monotonic() + seconds, []
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


def keep(kafka, topic: str, name: str = "retention.ms", value: str = "-1") -> None:
    """Set an option of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


@pytest.mark.integration
def test_a_topic_that_would_delete_the_night_again_is_refused(
    settings: Settings, run, kafka, topic: str
) -> None:
    store(settings, [alert(1), alert(2)], 1, [at(1), Envelope()])
    to = "--to", f"kafka://{kafka.bootstrap}/{topic}"
    refused = run(*to)
    _, err = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert f"the topic {topic} keeps messages for 7 days after their timestamps" in err
    assert "would delete 1 of these alerts again: set its retention.ms=-1 or" in err
    assert consumed(kafka.bootstrap, topic, 1, seconds=3) == []
    new = run("--to", f"kafka://{kafka.bootstrap}/{topic}-new")  # the brokers make it
    assert "keeps messages for 7 days" in new.communicate(timeout=60)[1]
    assert run(*to, "--ignore-retention").wait(60) == 0
    keep(kafka, topic, "message.timestamp.type", "LogAppendTime")
    assert run(*to).wait(60) == 0


@pytest.mark.integration
def test_what_was_read_before_a_damaged_pack_and_after_it_is_sent(
    settings: Settings, run, kafka, topic: str
) -> None:
    for number in (1, 2, 3):
        store(settings, [alert(number)], number, [Envelope()])
    bad = next(
        key
        for key in packs_of(settings)
        if pq.read_table(Path(settings.store[7:]) / key)["alert_id"][0].as_py() == 2
    )
    described = pq.read_metadata(Path(settings.store[7:]) / bad)
    packets = described.row_group(0).column(described.schema.names.index("packet"))
    damage(settings, bad, packets.data_page_offset + 60)  # the small columns are read first
    process = run("--to", f"kafka://{kafka.bootstrap}/{topic}")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out.splitlines()[-1].startswith("2 alerts, ")
    assert f"alert 2 is not whole: its packet: {bad} is damaged" in err
    assert "not whole and not sent: 1 alert" in err
    found = consumed(kafka.bootstrap, topic, 2)
    assert {each.value() for each in found} == {alert(1), alert(3)}


@pytest.mark.integration
def test_what_was_queued_is_sent_when_the_store_fails(kafka, topic: str) -> None:
    def alerts():
        for number in range(20):
            yield Replayed(b"%d" % number, None, [], None, "", number)
        raise StoreDown("the store is down")

    sizes: list[int] = []
    with pytest.raises(StoreDown):
        send(alerts(), f"kafka://{kafka.bootstrap}/{topic}", {}, sizes.append)
    assert len(sizes) == 20
    assert len(consumed(kafka.bootstrap, topic, 20)) == 20


@pytest.mark.integration
def test_a_night_in_kafka_is_as_it_was(settings: Settings, run, kafka, topic: str) -> None:
    keep(kafka, topic)
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


@pytest.mark.integration
def test_a_dry_run_and_wrong_arguments(settings: Settings, run) -> None:
    store(settings, [alert(1)])
    dry = run("--dry-run")
    assert dry.communicate() == (f"night MJD {NIGHT}: 1 alert of ztf from the topic alerts\n", "")
    for arguments, said in {
        (): "say where to send the alerts: --to kafka://HOST:PORT/TOPIC",
        ("--to", "127.0.0.1:9092/x"): "give kafka://HOST:PORT/TOPIC",
        ("--to", "kafka://127.0.0.1:9092"): "give kafka://HOST:PORT/TOPIC",
        (
            "--survey",
            "atlas",
            "--dry-run",
        ): "no survey 'atlas': there are lsst, ztf, winter, desirt",
        ("--survey", "lsst", "--dry-run"): "no packets of survey lsst of the night",
    }.items():
        process = run(*arguments)
        _, err = process.communicate()
        assert (process.returncode, said in err, err.count("\n")) == (2, True, 1), err
