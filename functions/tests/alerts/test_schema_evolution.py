"""A survey's schema changes: what Stampede does not need changes nothing, else both refuse.

The real alerts are not needed: those of the simulator have the schemas of today.
"""

import io
import json
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves
from stampede.images.fits import unpack
from stampede.store.objects.memory import MemoryObjects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, PACKETS
from stampede.store.tables.table import Table
from stampede_local.demo import oracle
from tests.support import waiting
from tests.support.alerts import evolved, made_alerts
from tests.support.alerts.oracle_comparison import assert_same_rows
from tests.support.events import kafka_messages
from tests.support.events.receiver import PARTITIONS, Receiver
from tests.support.events.schema_registry import SchemaRegistryServer
from tests.support.served import metrics
from tests.support.store.located import stored_image

FUNCTIONS = (cutouts, lightcurves)
TODAY = {survey: evolved.alerts_of_today(survey, 12) for survey in ("lsst", "ztf")}
OLDER = [made_alerts.confluent(made_alerts.rubin_record(v, v), v) for v in (300, 704, 800, 1000)]


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


@pytest.fixture(scope="module")
def settings(registry: SchemaRegistryServer, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(spool=tmp_path_factory.mktemp("spool"), schema_registry=registry.url)


class Stored:
    """A batch, stored by both functions in memory."""

    def __init__(self, settings: Settings, messages: list[bytes]) -> None:
        self.objects = MemoryObjects()
        positions = [Position("alerts@0", 0, number) for number in range(len(messages))]
        self.outcomes: list[list[StampedeError | None]] = []
        with pytest.MonkeyPatch.context() as patch:
            for function in FUNCTIONS:
                patch.setattr(function, "open_objects", lambda settings: self.objects)
                store = function.make_batch_storer(settings)
                self.outcomes.append(store(Batch(messages, positions)).outcomes)

    def points(self, object_ids: list[str]) -> list[dict]:
        return Table(self.objects, DETECTIONS).lookup(object_ids).to_pylist()

    def images(self, alert_id: int) -> dict[str, bytes | None]:
        rows = Table(self.objects, CUTOUTS).lookup([alert_id]).to_pylist()
        return {
            row["kind"]: row["pack"] and unpack(stored_image(self.objects, row)) for row in rows
        }

    def raw(self) -> list[pa.Table]:
        files = [self.objects.get(info.key) for info in self.objects.list("alerts/")]
        return [pq.read_table(io.BytesIO(file)) for file in files]


IDS = count(1102)  # Rubin 11.2 and what follows it


def registered(registry: SchemaRegistryServer, alert: evolved.Evolved) -> bytes:
    """The alert in Confluent's framing; its schema is in the registry alone."""
    schema_id = next(IDS)
    response = {"schema": json.dumps(alert.schema)}
    registry.answers[f"/schemas/ids/{schema_id}"] = (200, response)
    return alert.confluent(schema_id)


@pytest.mark.long
@hypothesis_settings(phases=[Phase.explicit, Phase.generate])  # a failure names its changes
@given(
    alerts=st.lists(evolved.evolved(TODAY), min_size=1, max_size=4, unique_by=lambda a: a.before),
    by_id=st.booleans(),
)
def test_a_schema_may_evolve(registry, settings, alerts, by_id) -> None:
    """Mixed with alerts of today and of older versions, in one batch."""
    today = [m for m in TODAY["lsst"][:2] + TODAY["ztf"][:2] if m not in {a.before for a in alerts}]
    framed = [
        registered(registry, alert) if by_id and alert.survey == "lsst" else alert.container()
        for alert in alerts
    ]
    stored = Stored(settings, [*today, *framed, *OLDER])
    of_images, of_points = stored.outcomes
    assert [outcome and outcome.message for outcome in of_images] == [
        outcome and outcome.message for outcome in of_points
    ]
    begin = len(today)
    for number, outcome in enumerate(of_points):
        alert = alerts[number - begin] if 0 <= number - begin < len(alerts) else None
        if alert is None or alert.refused is None:
            assert outcome is None, outcome.message
        else:
            assert 400 <= outcome.status < 500
            assert alert.refused in outcome.message
    good = [alert for alert in alerts if alert.refused is None]
    as_before(stored, [*today, *(alert.before for alert in good)])
    assert len(Table(stored.objects, PACKETS).coverage()) == len(today) + len(good) + len(OLDER)
    for alert in good:
        has_columns(stored.raw(), alert)


def as_before(stored: Stored, messages: list[bytes]) -> None:
    """The points and images of these alerts are those that fastavro finds in them."""
    heads = [oracle.head(message) for message in messages]
    for message, head in zip(messages, heads, strict=True):
        assert stored.images(head["alert_id"]) == oracle.cutouts(message)
        found = [r for r in stored.points([head["object_id"]]) if r["survey"] == head["survey"]]
        mine = [row for row in oracle.detections(message) if row["source_id"] == head["alert_id"]]
        assert_same_rows([r for r in found if r["source_id"] == head["alert_id"]], mine)


def has_columns(raw: list[pa.Table], alert: evolved.Evolved) -> None:
    """The added fields are in the row of `alerts/`, or left out by name."""
    alert_id = oracle.head(alert.before)["alert_id"]
    column = {"lsst": "diaSource", "ztf": "candid"}[alert.survey]

    def ids(table: pa.Table) -> list[int]:
        """Of the alerts. No other value is made one of Python's, as a time may be too large."""
        found = table[column]
        if pa.types.is_struct(found.type):
            found = pc.struct_field(found, "diaSourceId")
        return list(map(int, found.to_pylist()))

    (table,) = [t for t in raw if column in t.column_names and alert_id in ids(t)]
    left_out = json.loads((table.schema.metadata or {}).get(b"stampede.left_out", b"[]"))
    types = {field["name"]: field["type"] for field in alert.schema["fields"]}
    row = ids(table).index(alert_id)
    for name, value in alert.added.items():
        assert (name in left_out) == (value is evolved.LEFT_OUT) == (name not in table.column_names)
        if name not in left_out and "timestamp" not in json.dumps(types[name]):
            assert table[name][row].as_py() == value, types[name]


DURATION = {"type": "fixed", "name": "span", "size": 12, "logicalType": "duration"}
PACKET = {"type": "record", "name": "packet", "fields": [{"name": "n", "type": "int"}]}
ADDED: dict[str, tuple[Any, Any]] = {
    "a union": (["double", "string"], "x"),
    "a union that may be null": (["null", "double", "string"], 1.5),
    "a duration": (DURATION, bytes(12)),
    "a decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 90}, b"\1"),
    "an enum": ({"type": "enum", "name": "mood", "symbols": ["GOOD", "BAD"]}, "BAD"),
    "a fixed": ({"type": "fixed", "name": "five", "size": 5}, b"12345"),
    "a map of unions": ({"type": "map", "values": ["int", "string"]}, {"a": 1, "b": "x"}),
    "an array of unions": ({"type": "array", "items": ["int", "string"]}, [1, "x"]),
    "a union of records": ([PACKET, DURATION], {"n": 5}),
    "an empty record": ({"type": "record", "name": "none", "fields": []}, {}),
    "nothing": ("null", None),
}


def with_added(candid: int, kind: Any, value: Any, deep: bool) -> bytes:
    """A ZTF alert with one more field, at its end or in its candidate."""
    schema, record = made_alerts.ztf_schema(), made_alerts.ztf_record(candid)
    candidate = next(f for f in schema["fields"] if f["name"] == "candidate")["type"]
    field = {"name": "more", "type": evolved.schemas.without_logical(kind)}
    (candidate if deep else schema)["fields"].append(field)
    (record["candidate"] if deep else record)["more"] = value
    message = made_alerts.contained([record], schema)
    before, after = (json.dumps(each).encode() for each in (field["type"], kind))
    if before == after:
        return message
    field["type"] = kind
    _, data = oracle.unframe(message)
    given = evolved.Evolved("ztf", message, schema, data, None, {}, [])
    return given.container()


@pytest.mark.parametrize("deep", [False, True], ids=["alert", "candidate"])
def test_each_type_may_be_added(settings, deep: bool) -> None:
    """All else is stored, with the packet as sent; `alerts/` names what it lacks."""
    messages = [with_added(n, *added, deep) for n, added in enumerate(ADDED.values(), 1)]
    stored = Stored(settings, messages)
    assert stored.outcomes == [[None] * len(messages)] * 2
    assert len(stored.points(["ZTF18aaaaaaa"])) == len(messages)
    assert len(Table(stored.objects, PACKETS).coverage()) == len(messages)
    columns = {}
    for table in stored.raw():
        ((candid, row),) = zip(table["candid"].to_pylist(), table.to_pylist(), strict=True)
        left_out = (table.schema.metadata or {}).get(b"stampede.left_out")
        more = (row["candidate"] if deep else row).get("more", evolved.LEFT_OUT)
        assert left_out == (
            json.dumps(["candidate.more" if deep else "more"]).encode()
            if more is evolved.LEFT_OUT
            else None
        )
        columns[list(ADDED)[candid - 1]] = more
    kept = {"a duration": bytes(12), "a decimal": b"\1", "an enum": "BAD", "a fixed": b"12345"}
    assert columns == {name: kept.get(name, evolved.LEFT_OUT) for name in ADDED}
    for candid in range(1, len(messages) + 1):
        assert set(stored.images(candid).values()) == {made_alerts.FITS}


REFUSED = {
    "removed": ("magpsf", None, "no field candidate.magpsf"),
    "of another type": ("magpsf", "string", "candidate.magpsf"),
    "a union": ("jd", ["double", "string"], "candidate.jd"),
    "of the history": ("procstatus", DURATION, "fp_hists.procstatus"),
    "an image": ("stampData", "string", "cutoutScience.stampData"),
    "no image": ("stampData", None, "cutoutScience has no stampData"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_functions_refuse_an_alert_for_the_same_reason(settings, name: str) -> None:
    """If a field that they read is gone or has an unfit type; they name the field."""
    field, kind, reason = REFUSED[name]
    schema = json.loads(json.dumps(made_alerts.ztf_schema()))
    data = oracle.unframe(made_alerts.ztf_alert())[1]
    for each in evolved.schemas.definitions(evolved.schemas.simplify(schema)).values():
        assert each["type"] == "record"
    changed = json.dumps(schema)
    for record in records_of(schema):
        fields = [f for f in record["fields"] if f["name"] == field]
        if fields and record["name"] != "prv_candidate":
            fields[0]["type"] = kind
            record["fields"] = [f for f in record["fields"] if f["type"] is not None]
    assert json.dumps(schema) != changed
    bad = evolved.Evolved("ztf", b"", schema, data, None, {}, []).container()
    good = [made_alerts.ztf_alert(n) for n in (1, 2)]
    for outcomes in Stored(settings, [good[0], bad, good[1]]).outcomes:
        assert outcomes[0] is outcomes[2] is None
        assert outcomes[1] is not None
        assert outcomes[1].status == 422
        assert reason in outcomes[1].message


def records_of(kind: Any) -> Iterator[dict]:
    if isinstance(kind, list):
        for branch in kind:
            yield from records_of(branch)
    elif isinstance(kind, dict):
        if kind["type"] == "record":
            yield kind
        for inner in (kind.get("items"), *(f["type"] for f in kind.get("fields", ()))):
            yield from records_of(inner)


NEW = [
    with_added(n, *ADDED["a duration" if n % 2 else "a union of records"], deep=n % 4 < 2)
    for n in range(1, 21)
]


def mixed(first: int) -> list[bytes]:
    """160 alerts of the usual schema, and among them 20 of changed ones."""
    messages = [made_alerts.ztf_alert(candid) for candid in range(first, first + 160)]
    for number, message in enumerate(NEW):
        messages.insert(9 * number, message)
    return messages


@pytest.mark.integration
@pytest.mark.parametrize("name", ["cutouts", "lightcurves"])
def test_good_alerts_hardly_wait_for_new_ones(serve, kafka, topic: str, name: str) -> None:
    """At most twice the time that they take alone, and a second, as this machine may be busy.

    The better of two rounds counts: other tests run beside.
    """
    with Receiver() as letters:
        served = serve(
            name,
            FROM_KAFKA=True,
            KAFKA=kafka.bootstrap,
            TOPICS=topic,
            GROUP=topic,
            DEAD_LETTER_SINK=letters.url,
        )

        def seconds_until_committed(messages: list[bytes], total: int) -> float:
            begin = time.monotonic()
            kafka_messages.produce(kafka.bootstrap, topic, messages, partitions=PARTITIONS)
            waiting.eventually(lambda: committed() == total, seconds=300)
            return time.monotonic() - begin

        def committed() -> int:
            found = kafka_messages.committed(kafka.bootstrap, topic, topic, PARTITIONS)
            return sum(found.values())

        seconds_until_committed(mixed(1000)[1::9], 20)  # consumers join
        alone, with_new = [], []
        for first, total in ((2000, 180), (4000, 520)):
            good = [message for message in mixed(first) if message not in NEW]
            alone.append(seconds_until_committed(good, total))
            with_new.append(seconds_until_committed(mixed(first + 1000), total + 180))
        print(f"{name}: {alone} s alone, {with_new} s with 20 others among them")
        assert min(with_new) < 2 * min(alone) + 1
        assert letters.accepted == []
        assert 'outcome="stored"} 700.0' in metrics(served).decode()
