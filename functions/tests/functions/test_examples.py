"""The examples of `eventing/` sent to the functions' doors, as processes.

Those of a KafkaSource are written by its data plane's rules. That a KafkaSource's events and our
own source's make the same store is the point.
"""

import base64
import gzip
import json

import pytest

from stampede.events.record import CloudEventHeaders, Record
from stampede.store.coverage import Coverage
from stampede.store.objects import Objects
from stampede.store.open import open_objects
from stampede.store.schema import CUTOUTS, DETECTIONS, THUMBNAILS
from stampede.store.tables import Table
from stampede_local import oracle
from tests.support.event_examples import ALERTS, LETTER, STORED, event_of, example
from tests.support.receiver import Receiver
from tests.support.stored_alerts import Letter, letters

pytestmark = pytest.mark.integration

COVERAGE = Coverage.of({("lsst-alerts", 3): [42], ("ztf-alerts", 0): [7]})
TABLES = {"cutouts": CUTOUTS, "lightcurves": DETECTIONS}


def post(served, headers: dict[str, str], body: bytes):
    return served.http.request("POST", served.url, body=body, headers=headers)


def ours(name: str) -> dict[str, str]:
    """Headers of our own source for the record of an example."""
    sent = example(name)
    topic, partition, offset = sent.event.position
    record = Record(topic, partition, offset, 1_772_337_906_789, None, (), sent.body)
    return CloudEventHeaders("stampede", "ours", {}).headers(record)


@pytest.mark.parametrize("function", TABLES)
def test_alerts_of_a_kafka_source_are_stored_as_our_own_sources(serve, tmp_path, function) -> None:
    stores = {}
    for source in ("kafkasource", "ours"):
        served = serve(function, STORE=f"file://{tmp_path}/{source}", LINGER_MS=500)
        for name in ALERTS:
            headers = example(name).headers if source == "kafkasource" else ours(name)
            assert post(served, headers, example(name).body).status == 204
        objects = stores[source] = open_objects(served.settings)
        assert Table(objects, TABLES[function]).coverage() == COVERAGE
    assert contents(stores["kafkasource"], function) == contents(stores["ours"], function)


def contents(objects: Objects, function: str) -> list[object]:
    """What is stored of the examples: the images' bytes, or the points."""
    heads = [oracle.head(example(name).body) for name in ALERTS]
    table = Table(objects, TABLES[function])
    if function == "lightcurves":
        rows = table.lookup([head["object_id"] for head in heads]).to_pylist()
        assert len(rows) == 6
        return sorted(rows, key=lambda row: (row["object_id"], row["mjd"]))
    places = table.lookup([head["alert_id"] for head in heads]).to_pylist()
    stored = {
        (p["survey"], p["alert_id"], p["kind"]): gzip.decompress(
            objects.get(p["pack"], p["offset"], p["length"])
        )
        for p in places
    }
    assert stored == {
        (head["survey"], head["alert_id"], kind): fits
        for head, name in zip(heads, ALERTS, strict=True)
        for kind, fits in oracle.cutouts(example(name).body).items()
    }
    return sorted(stored.items())


def test_a_dead_letter_of_a_kafka_source_is_kept(serve) -> None:
    """What makes it one is what `cutouts` says of it."""
    letter = example(LETTER)
    plain = {name: text for name, text in letter.headers.items() if "knativeerror" not in name}
    refused = post(serve("cutouts"), plain, letter.body)
    assert str(refused.status) == letter.headers["ce-knativeerrorcode"]
    assert base64.b64decode(letter.headers["ce-knativeerrordata"]) == refused.data

    served = serve("deadletters")
    served.url += "/cutouts"
    assert post(served, *letter).status == 204
    kept = letters(open_objects(served.settings), "cutouts")
    reason = json.loads(refused.data)["detail"]
    assert kept == {("lsst-alerts", 3, 43): Letter("400", reason, letter.body)}


def test_the_event_of_a_stored_pack_is_taken(serve, tmp_path) -> None:
    served = serve("cutouts", LINGER_MS=500)
    for name in ALERTS:
        assert post(served, *example(name)).status == 204
    objects = open_objects(served.settings)
    for pack in [info.key for info in objects.list("packs/")]:
        told, key = example(STORED), example(STORED).headers["ce-subject"]
        sent = told.headers | {"ce-subject": pack}, told.body.replace(key.encode(), pack.encode())
        for function in ("thumbnails", "replicate"):
            door = serve(function, REPLICA=f"file://{tmp_path}/replica")
            assert post(door, *sent).status == 204
        assert (tmp_path / "replica" / pack).read_bytes() == objects.get(pack)
    assert Table(objects, THUMBNAILS).coverage() == COVERAGE


def test_the_relay_sends_what_it_is_told(serve) -> None:
    told = example(STORED)
    with Receiver() as broker:
        served = serve("notifications", SINK=broker.url)
        assert post(served, *told).status == 204
    (sent,) = broker.accepted
    assert event_of(sent.headers, sent.body).attributes == told.event.attributes
