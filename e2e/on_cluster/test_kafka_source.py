"""Functions' pods behind KafkaSources: the emulation of their contract, run in the toolbox."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.on_cluster.release import Release
from e2e.places import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

EMULATION = (ROOT / "functions" / "tests" / "support" / "events" / "kafka_source.py").read_text()
TOPIC, EPOCH, SEED = "by-kafka-source", "2026", 94
COUNT = 600
BROKEN = (7, 133, 301)
FUNCTIONS = {"cutouts": "cutouts", "lightcurves": "detections"}  # the table of each
# Send simulated alerts to a topic, then each record to both functions as KafkaSources do.
RUN = """
import json, sys
from confluent_kafka import Producer
from stampede.config.settings import Settings
from stampede_simulator.simulator import Simulator
given = json.load(sys.stdin)
kafka = Settings().kafka
producer = Producer({"bootstrap.servers": kafka})
for number, alert in enumerate(Simulator(given["seed"]).alerts(given["count"])):
    body = alert.body[:200] if number in given["broken"] else alert.body
    sent = [("producer_timestamp", str(time.time() * 1000).encode())]
    producer.produce(given["topic"], body, headers=sent)
assert producer.flush(60) == 0
extensions = {"topicid": given["epoch"], "accesskey": given["key"]}
sources = [
    KafkaSource(
        kafka, given["topic"], group, *sinks, backoff_seconds=0.2, extensions=extensions
    )
    for group, sinks in given["sinks"].items()
]
with sources[0], sources[1]:
    deadline = time.monotonic() + 240
    while any(each.finished < given["count"] for each in sources):
        assert time.monotonic() < deadline, [each.finished for each in sources]
        time.sleep(0.1)
found = [[each.given_up, each.attempts, each.most_in_flight] for each in sources]
print(json.dumps(found))
"""
# Print how many offsets of the topic each table holds, and the codes of the dead letters.
STORED = """
import json, sys
from stampede.deadletters.dead_letter import letters_of, read_rows
from stampede.config.settings import Settings
from stampede.store.offsets.coverage import topic_key
from stampede.store.open import open_objects
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table
topic, epoch, tables = json.load(sys.stdin)
objects, key = open_objects(Settings()), topic_key(topic, epoch)
stored = []
for table in tables:
    held = Table(objects, TABLES[table]).coverage()
    stored.append(sum(
        end - first for each in held.partitions() if each[0] == key
        for first, end in held.intervals(*each)
    ))
codes = [
    letter.code for info in objects.list("deadletters/")
    for letter in letters_of(read_rows(objects, info), info)
    if letter.position and letter.position[0] == key
]
print(json.dumps([stored, codes]))
"""


def test_every_alert_is_stored_or_a_dead_letter(release: Release) -> None:
    """Also of those that were in flight while the function's pods died."""
    letters = release.url("deadletters")
    given = {
        "topic": TOPIC,
        "epoch": EPOCH,
        "seed": SEED,
        "count": COUNT,
        "broken": BROKEN,
        "key": release.secret(f"{release.name}-event-key")["event-key"],
        "sinks": {
            name: (release.url(name), f"{letters}/{table}") for name, table in FUNCTIONS.items()
        },
    }
    with ThreadPoolExecutor(1) as pool:
        emulating = pool.submit(
            release.python, EMULATION + RUN, json.dumps(given).encode(), seconds=400
        )
        for _ in range(2):
            while not emulating.done() and not (pods := release.pods("cutouts")):
                time.sleep(0.5)
            time.sleep(2)
            if not emulating.done():
                release.kill(pods[0]["metadata"]["name"])
        of_cutouts, of_lightcurves = json.loads(emulating.result())
    assert of_cutouts[1] > COUNT, "nothing was retried"
    for given_up, _, in_flight in (of_cutouts, of_lightcurves):
        assert not given_up
        assert in_flight < 100
    asked = json.dumps([TOPIC, EPOCH, [*FUNCTIONS.values()]])
    stored, codes = json.loads(release.python(STORED, asked.encode()))
    assert stored == [COUNT - len(BROKEN)] * len(FUNCTIONS)
    assert codes == ["400"] * len(BROKEN) * len(FUNCTIONS)
