"""The examples of `eventing/` sent to the functions, as processes.

The examples of a KafkaSource follow the rules of its data plane. A KafkaSource's events and those
of our own source must result in the same store.
"""

import base64
import json
from collections.abc import Sequence

import pytest

from stampede.events.cloudevents.kafka_record import CloudEventHeaders, Record
from stampede.images.fits import unpack
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, THUMBNAILS
from stampede.store.tables.table import Table
from stampede_local.demo import oracle
from tests.support.events.event_examples import ALERTS, LETTER, STORED, event_of, example
from tests.support.events.receiver import Receiver
from tests.support.store.located import stored_image
from tests.support.store.stored_alerts import Letter, letters

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


def contents(objects: Objects, function: str) -> Sequence[object]:
    """What the store holds for the examples: the bytes of the images, or the points."""
    heads = [oracle.head(example(name).body) for name in ALERTS]
    table = Table(objects, TABLES[function])
    if function == "lightcurves":
        rows = table.lookup([head["object_id"] for head in heads]).to_pylist()
        assert len(rows) == 6
        return sorted(rows, key=lambda row: (row["object_id"], row["mjd"]))
    places = table.lookup([head["alert_id"] for head in heads]).to_pylist()
    stored = {
        (p["survey"], p["alert_id"], p["kind"]): unpack(stored_image(objects, p)) for p in places
    }
    assert stored == {
        (head["survey"], head["alert_id"], kind): fits
        for head, name in zip(heads, ALERTS, strict=True)
        for kind, fits in oracle.cutouts(example(name).body).items()
    }
    return sorted(stored.items())


def test_a_dead_letter_of_a_kafka_source_is_stored(serve) -> None:
    """Its error is the one that `cutouts` answers."""
    letter = example(LETTER)
    plain = {name: text for name, text in letter.headers.items() if "knativeerror" not in name}
    refused = post(serve("cutouts"), plain, letter.body)
    assert str(refused.status) == letter.headers["ce-knativeerrorcode"]
    assert base64.b64decode(letter.headers["ce-knativeerrordata"]) == refused.data

    served = serve("deadletters")
    served.url += "/cutouts"
    assert post(served, *letter).status == 204
    stored = letters(open_objects(served.settings), "cutouts")
    reason = json.loads(refused.data)["detail"]
    assert stored == {("lsst-alerts", 3, 43): Letter("400", reason, letter.body)}


def test_the_event_of_a_stored_pack_is_accepted(serve, tmp_path) -> None:
    served = serve("cutouts", LINGER_MS=500)
    for name in ALERTS:
        assert post(served, *example(name)).status == 204
    objects = open_objects(served.settings)
    for pack in [info.key for info in objects.list("packs/")]:
        stored, key = example(STORED), example(STORED).headers["ce-subject"]
        sent = (
            stored.headers | {"ce-subject": pack},
            stored.body.replace(key.encode(), pack.encode()),
        )
        for function in ("thumbnails", "replicate"):
            app = serve(function, REPLICA=f"file://{tmp_path}/replica")
            assert post(app, *sent).status == 204
        assert (tmp_path / "replica" / pack).read_bytes() == objects.get(pack)
    assert Table(objects, THUMBNAILS).coverage() == COVERAGE


def test_the_relay_sends_the_event_that_it_receives(serve) -> None:
    stored = example(STORED)
    with Receiver() as broker:
        served = serve("notifications", SINK=broker.url)
        assert post(served, *stored).status == 204
    (sent,) = broker.accepted
    assert event_of(sent.headers, sent.body).attributes == stored.event.attributes
