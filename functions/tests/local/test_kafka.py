import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stampede.errors import SetupError
from stampede_local.kafka import LocalKafka
from stampede_local.ports import free_port
from tests.support.events.kafka_messages import consume, produce


@pytest.mark.usefixtures("kafka_packages")
def test_it_keeps_its_messages_and_leaves_no_process(tmp_path: Path) -> None:
    server = LocalKafka(tmp_path, free_port(2))
    with server:
        produce(server.bootstrap, "alerts", [b"one", b"two"])
    assert not psutil.pid_exists(server.broker.pid or 0)
    with LocalKafka(tmp_path, server.port) as again:
        produce(again.bootstrap, "alerts", [b"three"])
        assert consume(again.bootstrap, "alerts", 3) == [b"one", b"two", b"three"]


def test_a_large_alert_goes_through(kafka: LocalKafka, topic: str) -> None:
    alert = b"x" * 3_000_000
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 16_000_000})
    producer.produce(topic, alert)
    assert producer.flush(150) == 0
    assert consume(kafka.bootstrap, topic, 1) == [alert]


def test_deleted_records_give_their_space_back(kafka: LocalKafka, topic: str) -> None:
    produce(kafka.bootstrap, topic, [bytes(900_000)] * 100)
    directory = kafka.directory / "data" / f"{topic}-0"
    assert size(directory) > 80_000_000
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 100)]).values()
    deleted.result(60)
    deadline = time.monotonic() + 60
    while size(directory) > 67_200_000:  # the segment that is written to stays
        assert time.monotonic() < deadline
        time.sleep(0.2)


def size(directory: Path) -> int:
    total = 0
    for path in directory.iterdir():
        with suppress(FileNotFoundError):  # just deleted
            # Not the size: indexes are as long as they may become.
            total += 512 * path.stat().st_blocks
    return total


@pytest.mark.usefixtures("kafka_packages")
def test_a_failed_broker_is_reported_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text(
        "version=1\nnode.id=7\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
    )
    with pytest.raises(SetupError, match=r"(?s)kafka ended with status 1.*node"):
        LocalKafka(tmp_path, free_port(2)).start()
