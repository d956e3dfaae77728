"""What `ingest` is compared with: Kafka alone, Ceph alone, and an object per cutout."""

import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer

from stampede.config.settings import Settings
from stampede.store.s3.bucket import S3Objects
from stampede_bench.instruments.load import Load
from stampede_local.demo.oracle import expected_alert

THREADS = 16  # of the rival


def kafka_rate(settings: Settings, total: int) -> float:
    """Records a second of a bare Kafka client that drops them."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka,
            "group.id": f"{settings.group}-drain",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([settings.group])  # topics are named like groups here
    try:
        found = len(consumer.consume(1, 30))  # joining the group is not measured
        begin, deadline = time.monotonic(), time.monotonic() + 60
        while found < total and time.monotonic() < deadline:
            found += len(consumer.consume(min(500, total - found), 1.0))
        return found / (time.monotonic() - begin)
    finally:
        consumer.close()


def put_rate(bucket: S3Objects, packs: list[int], total: int) -> float:
    """Alerts a second if packs of these sizes were all that had to be stored."""
    data = memoryview(bytes(max(packs)))
    begin = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        names = [f"again/{number}" for number in range(len(packs))]
        list(pool.map(lambda name, size: bucket.put(name, data[:size]), names, packs))
    return total / (time.monotonic() - begin)


def per_object_rate(bucket: S3Objects, alerts: Load) -> float:
    """Alerts a second of what most brokers do: decode an alert, put each cutout as an object."""
    messages = alerts.messages[:400]

    def store(message: bytes) -> None:
        expected = expected_alert(message)
        assert expected
        for kind in expected.cutouts:
            bucket.put(f"single/{expected.alert_id}/{kind}", bytes(15_000))

    begin = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(store, messages))
    return len(messages) / (time.monotonic() - begin)
