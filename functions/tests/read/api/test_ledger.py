"""The ledger over HTTP: what is in flight is told apart from what is missing, if Kafka is asked."""

import json
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.handlers.audit.audit import audit
from stampede.lookup import ledger_cache
from stampede.read.app import make_app
from stampede.store.integrity.ledger_json import entry_json
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import topic_key
from tests.handlers.audit.test_audit import make_anew, produce, store, topic_id
from tests.handlers.audit.test_kafka_audit import commit
from tests.support.read.read_service import Reader, serving


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def settings(kafka, topic) -> Settings:
    return Settings(kafka=kafka.bootstrap, group=topic, topics=topic)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_cache, "MAX_AGE", 0.0)


def reading(settings: Settings, objects: MemoryObjects) -> Iterator[Reader]:
    return serving(make_app(settings, objects))


def ledger(read: Reader) -> dict:
    response = read("/v1/ledger")
    assert response.status == 200
    return json.loads(response.data)


def of(page: dict, table: str, partition: int = 0) -> dict:
    (item,) = [
        each for each in page["ledger"] if (each["table"], each["partition"]) == (table, partition)
    ]
    return item


def topics_of(read: Reader) -> str:
    """The part of the ledger's page about topics."""
    return read("/ledger").data.decode().partition("Offsets of each partition")[0]


def test_without_topics_kafka_is_not_asked(objects) -> None:
    store(objects, "cutouts", {("alerts", 0): [0, 1, 4]})
    for read in reading(Settings(kafka="127.0.0.1:1"), objects):
        page = ledger(read)
        assert page["kafka"] == {"asked": False, "error": None}
        item = of(page, "cutouts")
        assert (item["missing"], item["in_flight"]) == ({"count": 2, "intervals": [[2, 4]]}, None)
        assert item["stored"] == {"count": 3, "intervals": [[0, 2], [4, 5]]}
        assert ">in flight</abbr></th>" not in topics_of(read)


def test_a_kafka_that_is_down_delays_one_answer(objects, monkeypatch) -> None:
    monkeypatch.setattr(ledger_cache, "PATIENCE", 1.0)
    store(objects, "cutouts", {("alerts", 0): [0, 1, 4]})
    down = Settings(kafka="127.0.0.1:1", topics="alerts")
    for read in reading(down, objects):
        page = ledger(read)
        assert page["kafka"]["asked"] is False
        assert "127.0.0.1:1" in page["kafka"]["error"]
        assert of(page, "cutouts")["in_flight"] is None
        begin = time.monotonic()
        assert ledger(read) == page
        assert time.monotonic() - begin < 0.9


@pytest.mark.integration
def test_the_same_as_audit(objects, settings, topic) -> None:
    produce(settings, topic, {0: 10, 1: 4})
    key = topic_key(topic, topic_id(settings, topic))
    store(objects, "cutouts", {(key, 0): [0, 1, 2, 4, 6]})
    store(objects, "detections", {(key, 0): range(10), (key, 1): range(4)})
    commit(settings, topic, {0: 5, 1: 0})
    for read in reading(settings, objects):
        page = ledger(read)
        assert page["kafka"] == {"asked": True, "error": None}
        item = of(page, "cutouts")
        assert item["missing"] == {"count": 1, "intervals": [[3, 4]]}
        assert item["in_flight"] == {"count": 4, "intervals": [[5, 6], [7, 10]]}
        assert of(page, "cutouts", 1)["in_flight"]["count"] == 4
        assert of(page, "cutouts", 1)["missing"]["count"] == 0
        assert of(page, "detections")["in_flight"] == {"count": 0, "intervals": []}
        for item in page["ledger"]:
            for name in ("stored", "dead_lettered", "accepted"):
                del item[name]["intervals"]
        topics = Topics((topic,))
        audited = [entry_json(entry, topics) for entry in audit(objects, settings, topics)]
        assert page["ledger"] == json.loads(json.dumps(audited))
        front = topics_of(read)
        assert ">in flight</abbr></th>" in front
        assert '<td class="bad">1</td><td>8</td>' in front
        # What is committed and not stored is missing.
        commit(settings, topic, {0: 10, 1: 4})
        item = of(ledger(read), "cutouts")
        assert item["missing"]["intervals"] == [[3, 4], [5, 6], [7, 10]]
        assert item["in_flight"]["count"] == 0


@pytest.mark.integration
def test_what_no_source_has_begun_to_read_is_in_flight(objects, settings, topic) -> None:
    produce(settings, topic, {0: 3, 2: 5})
    store(objects, "cutouts", {(topic_key(topic, topic_id(settings, topic)), 0): range(3)})
    commit(settings, topic, {0: 3})
    for read in reading(settings, objects):
        item = of(ledger(read), "cutouts", 2)
        assert (item["missing"]["count"], item["in_flight"]["count"]) == (0, 5)
        assert item["notes"] == ["partition 2: no source of cutouts has begun to read it"]


@pytest.mark.integration
def test_an_earlier_topic_of_the_name_has_nothing_in_flight(objects, settings, topic) -> None:
    old = topic_key(topic, topic_id(settings, topic))
    store(objects, "cutouts", {(old, 0): [0, 1, 3]})
    store(objects, "detections", {(old, 0): range(6)})
    make_anew(settings, topic)
    produce(settings, topic, {0: 2})
    commit(settings, topic, {0: 0})
    new = topic_key(topic, topic_id(settings, topic))
    for read in reading(settings, objects):
        items = {
            topic_key(each["topic"], each["topic_id"]): each
            for each in ledger(read)["ledger"]
            if (each["table"], each["partition"]) == ("cutouts", 0)
        }
        assert items[old]["in_flight"] is None
        assert items[old]["missing"]["count"] == 1
        assert items[old]["deleted_with_topic"]["intervals"] == [[4, 6]]
        assert items[new]["in_flight"]["count"] == 2
        assert items[new]["missing"]["count"] == 0


@pytest.mark.integration
def test_a_topic_whose_offsets_have_no_id_is_left_as_it_is(objects, settings, topic) -> None:
    """Whether they are those of the present topic, only samples show: `audit` compares them."""
    produce(settings, topic, {0: 5})
    store(objects, "cutouts", {(topic, 0): [0, 1, 4]})
    for read in reading(settings, objects):
        page = ledger(read)
        assert page["kafka"] == {"asked": False, "error": None}
        assert of(page, "cutouts")["in_flight"] is None
        assert of(page, "cutouts")["missing"]["intervals"] == [[2, 4]]


def test_the_ledger_in_parts(objects) -> None:
    """All parts together are the whole, whatever the size, each item once."""
    nights = {(f"ztf_202601{day:02}_programid1@{day}", p): [0, 1] for day in (1, 2) for p in (0, 1)}
    for table in ("cutouts", "detections"):
        store(objects, table, nights | {("alerts", 0): [0]})
    for read in reading(Settings(), objects):
        whole = ledger(read)
        assert whole["next"] is None
        for limit in (1, 3, 9, 10, 11):
            items, after = [], ""
            while after is not None:
                query = f"?limit={limit}" + (f"&after={quote(after, safe='')}" if after else "")
                part = json.loads(read(f"/v1/ledger{query}").data)
                assert len(part["ledger"]) <= limit
                items += part["ledger"]
                after = part["next"]
            assert sorted(map(str, items)) == sorted(map(str, whole["ledger"]))
        named = json.loads(read("/v1/ledger?family=alerts").data)["ledger"]
        assert {item["topic"] for item in named} == {"alerts"}
        for wrong in ("limit=0", "limit=x", "after=x", "after=a/b/c", "limit=100001"):
            assert read(f"/v1/ledger?{wrong}").status == 400


def test_the_ledger_of_a_family(objects) -> None:
    store(objects, "cutouts", {("ztf_20260101_programid1@1", 0): [0], ("alerts", 0): [0]})
    settings = Settings(topics="ztf_{YYYYMMDD}_programid1,alerts", kafka="127.0.0.1:1")
    for read in reading(settings, objects):
        family = quote("ztf_{YYYYMMDD}_programid1")
        found = json.loads(read(f"/v1/ledger?family={family}").data)["ledger"]
        assert {item["topic"] for item in found} == {"ztf_20260101_programid1"}
