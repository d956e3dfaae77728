"""Rubin's ingester on a Kafka without passwords: run by its own Python, not by Stampede's.

Its consumer, made with all of its own options, gets three others: no SASL, and a session that
outlives the pause in which the benchmark fills the topic.
"""

import argparse
import asyncio
import logging
from typing import Any

from alertingest import ingester
from alertingest.schema_registry import SchemaRegistryClient
from alertingest.storage import USDFObjectStorageBackend

PAUSE_MS = 300_000


def main() -> None:
    """Store alerts of a topic until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("kafka", "topic", "endpoint", "alerts", "schemas", "registry"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)  # as its own command
    consumer = ingester.AIOKafkaConsumer

    def plain(**options: Any) -> Any:
        kept = {name: value for name, value in options.items() if not name.startswith("sasl_")}
        kept |= {"security_protocol": "PLAINTEXT", "session_timeout_ms": PAUSE_MS}
        return consumer(**kept)

    ingester.AIOKafkaConsumer = plain
    worker = ingester.IngestWorker(
        ingester.KafkaConnectionParams.with_scram(
            given.kafka, [given.topic], f"{given.topic}-group", "nobody", "nothing"
        ),
        USDFObjectStorageBackend(given.alerts, given.schemas, endpoint_url=given.endpoint),
        SchemaRegistryClient(given.registry),
    )
    asyncio.run(worker.run(auto_offset_reset="earliest"))


if __name__ == "__main__":
    main()
