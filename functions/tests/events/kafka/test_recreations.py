"""Topics that are made anew while alerts arrive: real Kafka and functions, both ways in."""

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stampede.alerts.columns import KINDS
from stampede.cli.reports.ledger_report import status_of
from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.events import ALERT_FUNCTIONS
from stampede.handlers.audit.audit import audit
from stampede.store.integrity import ledger
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS, PACKETS
from stampede.store.tables.table import Table
from stampede_local.kafka import LocalKafka
from stampede_local.ports import free_port
from stampede_local.process import Process
from tests.support.alerts import made_alerts
from tests.support.events.recreations import Recreations, faults

pytestmark = pytest.mark.integration

COUNT = int(os.environ.get("RECREATIONS", "5"))
SEED = int(os.environ.get("SEED", "0")) or time.time_ns() % 1_000_000
TABLES = {"cutouts": CUTOUTS, "lightcurves": PACKETS}  # each has a row of all its alerts
FAST, SLOW = (0.2, 2.0), (4.0, 24.0)  # seconds that a topic lives
GAP, NO_GAP = (0.0, 6.0), (0.0, 0.0)  # seconds without a topic
CAUGHT_UP_SECONDS = 90.0


@pytest.fixture
def start(
    serve: Callable, kafka: LocalKafka, tmp_path: Path
) -> Iterator[Callable[[str, str], str]]:
    """Starts both functions on a topic, with sources of both or without; returns the store."""
    sources: list[Process] = []

    def go(topic: str, way: str) -> str:
        letters = serve("deadletters")
        common = {"KAFKA": kafka.bootstrap, "TOPICS": topic, "BACKOFF_SECONDS": 0.05}
        sinks = {}
        for function, table in ALERT_FUNCTIONS.items():
            if way == "function":
                own = {"GROUP": f"{topic}-{function}", "DEAD_LETTER_SINK": f"{letters.url}/{table}"}
                serve(function, FROM_KAFKA=True, **common, **own)
            else:
                sinks[table] = serve(function).url
        env = {"GROUP": topic, "DEAD_LETTER_SINK": letters.url, "SINKS": json.dumps(sinks)}
        for number in range({"function": 0, "source": 1, "two sources": 2}[way]):
            source = Process(
                f"source-{number}",
                [sys.executable, "-m", "stampede", "serve", "source"],
                tmp_path / f"source-{number}.log",
                {f"STAMPEDE_{key}": str(value) for key, value in (common | env).items()}
                | {"STAMPEDE_PORT": str(free_port())},
            )
            source.start()
            sources.append(source)
        return letters.settings.store

    yield go
    for source in sources:
        source.stop()
        print(source.tail(60))


@pytest.mark.parametrize("way", ["function", "source", "two sources"])
def test_topics_made_anew_under_traffic(start, kafka: LocalKafka, way: str) -> None:
    """No offset is accounted to a topic that did not have its alert; none is lost or doubled."""
    seed, topic = SEED, f"anew-{uuid.uuid4().hex[:8]}"
    print(f"again with RECREATIONS={COUNT} SEED={seed}")
    with Recreations(kafka.bootstrap, topic, made_alerts.ztf_alert, seed) as recreations:
        settings = Settings(kafka=kafka.bootstrap, group=topic, store=start(topic, way))
        for number in range(COUNT):
            slow = number % 7 == 6
            print(recreations.make_anew(SLOW if slow else FAST, GAP if number % 3 else NO_GAP))
        time.sleep(3)
    objects = open_objects(settings)
    begin = time.monotonic()
    while any(wrong(objects, recreations)) and time.monotonic() - begin < CAUGHT_UP_SECONDS:
        time.sleep(1)
    print(f"all was stored {time.monotonic() - begin:.1f} s after the last alert")
    assert list(wrong(objects, recreations)) == []
    entries = audit(objects, settings, Topics((topic,)), everything=True)
    told = [(e.table, e.topic_id, e.partition, e.missing, e.faults) for e in entries]
    assert status_of(entries) == 0, [each for each in told if each[-2] or each[-1]]
    assert list(doubled(objects, recreations)) == []


def wrong(objects: Objects, recreations: Recreations) -> Iterator[str]:
    """What is wrong in the tables."""
    accounts = ledger.accounts(objects)
    for function, table in ALERT_FUNCTIONS.items():
        account = accounts[table].all
        covered = {at: account.intervals(*at) for at in account.partitions()}
        reader = Table(objects, TABLES[function])

        def stored(numbers: list[int], reader: Table = reader) -> set[int]:
            return set(reader.lookup(numbers).column("alert_id").to_pylist())

        for fault in faults(recreations.contents, covered, stored, recreations.keys[-1]):
            yield f"{table}: {fault}"


def doubled(objects: Objects, recreations: Recreations) -> Iterator[str]:
    """Which tables have an alert in more than one run; nothing has merged runs."""
    sent = [number for numbers in recreations.contents.values() for number in numbers]
    for function, spec in TABLES.items():
        table = Table(objects, spec)
        alerts = len(set(table.lookup(sent).column("alert_id").to_pylist()))
        rows = sum(part.rows for part in table.runs())
        if rows != alerts * (len(KINDS) if function == "cutouts" else 1):
            yield f"{function}: {rows} rows of {alerts} alerts"
