"""The guard of notifications, on a real Ceph: a dead receiver stops no storing of alerts."""

import asyncio
import json
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.events.cloudevents.event import Event
from stampede.events.cloudevents.s3_events import stored_event
from stampede.handlers.reconcile import notification_guard
from stampede.handlers.reconcile.notification_guard import NotificationGuard
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.store.ceph import bucket_notifications
from stampede.store.ceph.bucket_notifications import PREFIXES, NotifyingBucket
from stampede.store.integrity.verification import foreign
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.probes import ASKED, RECEIVED, SENT, moments_of, receive, write_moments
from stampede.store.open import first_site, open_objects
from stampede.telemetry import reconcile_metrics
from stampede_local.ceph import LocalCeph
from stampede_local.ports import free_port
from tests.support.events.receiver import Received, Receiver, Reply, accept
from tests.support.waiting import eventually

SERVED = 120  # seconds; RGW serves a new topic within 30 s
PATIENCE = 4.0


@pytest.fixture(autouse=True)
def _long_until_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than RGW takes to serve a new topic."""
    monkeypatch.setattr(notification_guard, "TIMES", 12)


@pytest.fixture
def settings(ceph: LocalCeph) -> Settings:
    return Settings(
        store=f"{ceph.endpoint}/guard-{free_port()}-{time.monotonic_ns()}",
        access_key=ceph.keys.access_key,
        secret_key=ceph.keys.secret_key,
        notification_patience_seconds=PATIENCE,
        reconcile="notifications",
        installation="sky",
    )


@pytest.fixture
def receiver(settings: Settings) -> Receiver:
    """What takes the probes, as relay, Broker and `thumbnails` do together; not started yet."""
    objects = open_objects(settings)

    def take(request: Received, times: int) -> Reply:
        for record in json.loads(request.body)["Records"]:
            key = record["s3"]["object"]["key"]
            if key.startswith(SENT):
                receive(objects, key)
        return accept(request, times)

    return Receiver(take)


def set_up(settings: Settings, receiver: Receiver) -> NotifyingBucket:
    update = {"notifications": receiver.url}
    bucket_notifications.setup(settings.model_copy(update=update), list[str]().append)
    return NotifyingBucket(first_site(settings), settings.installation)


def lacking(bucket: NotifyingBucket) -> list[str]:
    topic = bucket.topic()
    assert topic
    return bucket.lacking(topic)


def metric(name: str) -> float:
    gauge = getattr(reconcile_metrics, name)
    return gauge.collect()[0].samples[0].value


def passes_until(settings: Settings, bucket: NotifyingBucket, complete: bool) -> None:
    """Make passes until the bucket has all notifications, or only those of probes."""
    wanted = [] if complete else [prefix for prefix in PREFIXES if prefix != SENT]

    def done() -> bool:
        Reconciler(settings).run()
        time.sleep(0.5)
        return lacking(bucket) == wanted and (metric("NOTIFICATIONS_WAITED") < PATIENCE) == complete

    eventually(done, SERVED)


def test_notifications_are_off_while_nobody_takes_them(
    settings: Settings, receiver: Receiver
) -> None:
    bucket, objects = set_up(settings, receiver), open_objects(settings)
    passes_until(settings, bucket, complete=False)
    assert metric("NOTIFICATIONS_OFF") == 1
    assert metric("NOTIFICATIONS_WAITED") > PATIENCE
    objects.put("packs/60000/x.parquet", b"data")  # what stores alerts goes on
    with receiver:
        passes_until(settings, bucket, complete=True)
        assert metric("NOTIFICATIONS_OFF") == 0
        objects.put("packs/60000/y.parquet", b"data")
        eventually(lambda: any(b"y.parquet" in each.body for each in receiver.accepted), SERVED)
        assert not any(b"packs/60000/x.parquet" in each.body for each in receiver.accepted)
    assert not [*objects.list(SENT)]
    assert not [info.key for info in objects.list("probes/") if foreign(info.key)]


def test_nothing_is_taken_off_while_they_come(settings: Settings, receiver: Receiver) -> None:
    with receiver:
        bucket = set_up(settings, receiver)
        passes_until(settings, bucket, complete=True)
        eventually(lambda: bool(receiver.accepted), SERVED)  # served from now on
        Reconciler(settings).run()
        passes_until(settings, bucket, complete=True)
        end = time.monotonic() + 4 * PATIENCE
        while time.monotonic() < end:
            Reconciler(settings).run()
            assert lacking(bucket) == []
            time.sleep(0.5)


@pytest.mark.long
def test_a_queue_that_is_lost_is_made_anew(
    ceph: LocalCeph, settings: Settings, receiver: Receiver
) -> None:
    """Behind our back: RGW keeps the topic, and delivers nothing any more."""
    with receiver:
        bucket = set_up(settings, receiver)
        passes = Reconciler(settings)
        passes.run()
        eventually(lambda: bool(receiver.accepted), SERVED)
        topic = bucket.topic()
        assert topic
        command = ("rados", "-c", str(ceph.directory / "ceph.conf"), "-p", "default.rgw.log")
        lost = (*command, "--namespace", "notif", "rm", topic.name)
        subprocess.run(lost, check=True, timeout=60)
        passes_until(settings, bucket, complete=False)
        passes_until(settings, bucket, complete=True)


@pytest.mark.long
def test_a_receiver_that_refused_connections_is_served_again(
    settings: Settings, receiver: Receiver
) -> None:
    """RGW gives up a topic whose receiver refuses connections, until it is restarted."""
    with receiver:
        bucket = set_up(settings, receiver)
        Reconciler(settings).run()
        eventually(lambda: bool(receiver.accepted), SERVED)
    before = bucket.topic()
    passes_until(settings, bucket, complete=False)
    with receiver:
        eventually(lambda: bool(Reconciler(settings).run()) or bucket.topic() != before, SERVED)
        passes_until(settings, bucket, complete=True)
        open_objects(settings).put("packs/60000/z.parquet", b"data")
        eventually(lambda: any(b"z.parquet" in each.body for each in receiver.accepted), SERVED)
    lines: list[str] = []
    bucket_notifications.remove(settings, lines.append)
    assert bucket.topic() is None


def test_a_dry_run_and_a_patience_of_zero_change_nothing(
    settings: Settings, receiver: Receiver
) -> None:
    bucket, objects = set_up(settings, receiver), open_objects(settings)
    first = objects.now() - timedelta(seconds=2 * PATIENCE)
    write_moments(objects, ASKED, first, objects.now())
    Reconciler(settings).run(repair=False)
    assert lacking(bucket) == []
    assert metric("NOTIFICATIONS_OFF") == 0
    Reconciler(settings.model_copy(update={"notification_patience_seconds": 0.0})).run()
    assert lacking(bucket) == []


def test_nothing_is_taken_off_after_a_time_without_passes(
    settings: Settings, receiver: Receiver
) -> None:
    """The system was stopped for a night: what did not come then says nothing."""
    bucket, objects = set_up(settings, receiver), open_objects(settings)
    evening = objects.now() - timedelta(hours=9)
    write_moments(objects, ASKED, evening, evening)
    Reconciler(settings).run()
    assert lacking(bucket) == []
    assert metric("NOTIFICATIONS_WAITED") == 0


def test_a_store_that_notifies_nobody_gets_no_probe(settings: Settings) -> None:
    bucket_notifications.setup(settings, list[str]().append)
    Reconciler(settings).run()
    assert [*open_objects(settings).list("")] == []
    objects = MemoryObjects()
    NotificationGuard(Settings(), objects).check(repair=True)
    assert [*objects.list("")] == []


def test_thumbnails_write_down_that_a_probe_came(tmp_path: Path) -> None:
    settings = Settings(store=f"file://{tmp_path}")
    event: Event = stored_event("bucket", "region", f"{SENT}1234567")
    asyncio.run(Thumbnails(settings).handle(event))
    objects = open_objects(settings)
    assert [found.timestamp() for found in moments_of(objects, RECEIVED)] == [1234.567]
    objects.put(RECEIVED, b"junk")
    assert moments_of(objects, RECEIVED) == []
