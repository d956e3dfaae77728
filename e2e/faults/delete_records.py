"""Deletes Kafka's records before an offset, as retention does, and prints the first that is left.

A process of its own: librdkafka 2's admin client may abort its process if Kafka dies meanwhile.
"""

import sys

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

SECONDS = 20.0


def main(bootstrap: str, topic: str, partition: str, before: str) -> None:
    """Delete the records of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    records = [TopicPartition(topic, int(partition), int(before))]
    [deleted] = admin.delete_records(records, request_timeout=SECONDS).values()
    print(deleted.result(SECONDS).low_watermark)


if __name__ == "__main__":
    main(*sys.argv[1:])
