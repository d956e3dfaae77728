"""The guard of notifications, on a real Ceph: a dead receiver stops no storing of alerts."""

import asyncio
import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.events.cloudevents.event import Event
from stampede.events.cloudevents.s3_events import stored_event
from stampede.handlers.reconcile import notification_guard
from stampede.handlers.reconcile.notification_guard import LIFE, NotificationGuard
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.runtime.progress import silent
from stampede.store.ceph import bucket_notifications
from stampede.store.ceph.bucket_notifications import PREFIXES, NotifyingBucket
from stampede.store.integrity.verification import foreign
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.objects.probes import (
    ASKED,
    RECEIVED,
    SEEN,
    SENT,
    moments_of,
    receive,
    write_moments,
)
from stampede.store.open import first_site, open_objects
from stampede.telemetry import reconcile_metrics
from stampede_local.ceph import LocalCeph
from stampede_local.ports import free_port
from tests.support.events.receiver import Received, Receiver, Reply, accept
from tests.support.store.ceph import minio_of
from tests.support.store.small_queue import make_queue, used_and_lost
from tests.support.store.two_sites import put_pack
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


@pytest.fixture
def small(ceph: LocalCeph, settings: Settings) -> str:
    """The topic of a new bucket, with a queue that a hundred notifications fill."""
    bucket = NotifyingBucket(first_site(settings), settings.installation)
    minio_of(ceph).make_bucket(bucket_name=settings.store.rpartition("/")[2])
    make_queue(ceph, bucket.topic_name, 100_000)
    return bucket.topic_name


def put_until_refused(objects: Objects) -> int:
    """Store packs until the store refuses one, as it does while the queue is full; how many."""
    for number in range(1000):
        try:
            objects.put(f"packs/60000/{number}.parquet", b"data")
        except StoreDown:
            return number
    raise AssertionError("the queue took all")


def test_a_full_queue_stops_nothing_for_long(
    settings: Settings, receiver: Receiver, small: str
) -> None:
    """Nobody takes notifications: one pass sends them to an empty queue, the next ones to none."""
    bucket, objects = set_up(settings, receiver), open_objects(settings)
    early = put_pack(objects, range(5))
    assert 50 < put_until_refused(objects) < 200
    Reconciler(settings).run()
    objects.put("packs/60000/x.parquet", b"data")
    assert lacking(bucket) == []
    assert metric("NOTIFICATIONS_OFF") == 0
    passes_until(settings, bucket, complete=False)
    late = put_pack(objects, range(5, 10))
    with receiver, Receiver() as broker:
        passes_until(settings, bucket, complete=True)
        objects.put("packs/60000/z.parquet", b"data")
        eventually(lambda: "z.parquet" in names_in(receiver), SERVED)
        steps = {"reconcile": "packs,thumbnails", "sink": broker.url, "grace_seconds": 0.0}
        Reconciler(settings.model_copy(update=steps)).run()
        told = {event.headers["ce-subject"] for event in broker.accepted}
        assert {early.key, late.key} <= told


def names_in(receiver: Receiver) -> set[str]:
    """The names of the packs of which notifications came."""
    records = (json.loads(each.body)["Records"] for each in receiver.accepted)
    keys = (each["s3"]["object"]["key"] for record in records for each in record)
    return {key.rpartition("/")[2] for key in keys if key.startswith("packs/")}


def test_a_topic_is_made_anew_before_what_it_loses_fills_its_queue(
    ceph: LocalCeph, settings: Settings, receiver: Receiver, small: str
) -> None:
    """Ceph loses 10 bytes of a queue with each notification, however well they are delivered."""
    with receiver:
        bucket, objects = set_up(settings, receiver), open_objects(settings)
        first = bucket.topic()
        assert first
        for number in range(90):
            objects.put(f"packs/60000/{number}.parquet", b"data")
        eventually(lambda: len(names_in(receiver)) == 90, SERVED)
        eventually(lambda: used_and_lost(ceph, small) == (0, 900), SERVED)
        Reconciler(settings).run()
        assert bucket.topic() == first
        write_moments(objects, SEEN, objects.now() - LIFE - timedelta(seconds=10))
        Reconciler(settings).run()
        second = bucket.topic()
        assert second
        assert second != first
        assert bucket.lacking(second) == []
        assert len(bucket.notifications()) == len(PREFIXES)
        assert used_and_lost(ceph, second.name) < (2000, 100)
        objects.put("packs/60000/y.parquet", b"data")
        eventually(lambda: "y.parquet" in names_in(receiver), SERVED)


def test_no_notification_is_lost_while_a_topic_is_made_anew(
    settings: Settings, receiver: Receiver
) -> None:
    """Objects are stored all the time. The topic before stays, and delivers what it has."""
    with receiver:
        bucket, objects = set_up(settings, receiver), open_objects(settings)
        first = bucket.topic()
        assert first
        stop, stored = threading.Event(), list[str]()

        def store() -> None:
            while not stop.is_set():
                stored.append(f"{len(stored)}.parquet")
                objects.put(f"packs/60000/{stored[-1]}", b"data")

        with ThreadPoolExecutor(1) as thread:
            storing = thread.submit(store)
            time.sleep(1)
            bucket.renew(first, 1, PREFIXES, silent)
            before = len(stored)
            time.sleep(1)
            stop.set()
            storing.result()
        assert 20 < before < len(stored) - 20
        eventually(lambda: {*stored} <= names_in(receiver), SERVED)
        second = bucket.topic()
        assert second
        bucket.renew(second, 2, PREFIXES, silent)
        ours = [each.name for each in bucket.topics() if each.name.startswith(first.name)]
        assert sorted(ours) == [f"{first.name}-anew-1", f"{first.name}-anew-2"]


def test_one_refusal_of_a_probe_changes_nothing(
    settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is busy, or a gateway that is started anew, refuses one."""
    bucket = set_up(settings, receiver)
    before, stores = bucket.topic(), NotifyingBucket.stores
    answers = [False]
    monkeypatch.setattr(
        NotifyingBucket, "stores", lambda self, key: answers.pop() if answers else stores(self, key)
    )
    Reconciler(settings).run()
    assert bucket.topic() == before
    assert not answers
    answers[:] = [False, False]
    Reconciler(settings).run()
    assert bucket.topic() != before


def test_a_store_that_is_away_loses_no_topic(
    settings: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = set_up(settings, receiver)
    before = bucket.topic()

    def away(self: NotifyingBucket, key: str) -> bool:
        raise StoreDown("answered 502")

    with monkeypatch.context() as patch:
        patch.setattr(NotifyingBucket, "stores", away)
        with pytest.raises(StoreDown):
            Reconciler(settings).run()
    assert bucket.topic() == before
    assert metric("NOTIFICATIONS_OFF") == 0


@pytest.mark.long
def test_a_receiver_that_refused_connections_is_served_again(
    settings: Settings, receiver: Receiver
) -> None:
    """RGW gives up a topic whose receiver refuses connections, until it is restarted."""
    with receiver:
        bucket = set_up(settings, receiver)
        Reconciler(settings).run()
        eventually(lambda: bool(receiver.accepted), SERVED)
    passes_until(settings, bucket, complete=False)
    with receiver:
        passes_until(settings, bucket, complete=True)  # by another topic, if it gave this one up
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
