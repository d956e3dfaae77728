"""Many light curves as the survey told them with alerts, or up to one time."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import urllib3

from stampede.alerts.columns import DETECTION, DETECTION_KEY
from stampede.config.settings import Settings
from stampede.handlers import cutouts
from stampede.lookup import stored_records
from stampede.lookup.as_of import ROUNDS, TOLD
from stampede.read.app import make_app
from stampede.store.open import open_objects
from stampede_local.demo import oracle
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.alerts import made_alerts, mixed_programmes
from tests.support.alerts.oracle_comparison import assert_same_rows
from tests.support.read.read_service import BOTH, Reader, keep, sample_store, serving
from tests.support.store.stored_packets import store, ztf_with_images

PATH = "/v1/lightcurves?withdrawn=true"


@pytest.fixture
def read(settings: Settings) -> Iterator[Reader]:
    yield from serving(make_app(settings))


class Answer(NamedTuple):
    """The rows of a response, and what its end says that it lacks."""

    rows: pa.Table
    missing: list[str]
    unreadable: list[str]
    incomplete: list[str]


def ask(read: Reader, asof: object, ids: Sequence[object], more: str = "") -> Answer:
    body = json.dumps({"ids": [*map(str, ids)]}).encode()
    got = read(f"{PATH}&format=parquet&asof={asof}{more}", "POST", body)
    assert got.status == 200, got.data
    file = pq.ParquetFile(pa.BufferReader(got.data))
    pairs = file.metadata.metadata
    names = ("missing", "unreadable", "incomplete")
    ends = (json.loads(pairs.get(f"stampede.{name}".encode(), b"[]")) for name in names)
    return Answer(file.read(), *ends)


def by_alert(rows: pa.Table) -> dict[int, list[dict]]:
    """The points without their alert id, by it."""
    found = defaultdict(list)
    for row in rows.to_pylist():
        found[row.pop("alert_id")].append(row)
    return found


def history(message: bytes) -> list[dict[str, Any]]:
    """The points in a packet, decoded by the oracle, that of each key that was made last."""
    points: dict[tuple, dict[str, Any]] = {}
    for point in oracle.detections(message):
        key = tuple(point[name] for name in DETECTION_KEY)
        if key not in points or point["processed_mjd"] > points[key]["processed_mjd"]:
            points[key] = point
    return [*points.values()]


class Sent(NamedTuple):
    """An alert of the simulator."""

    message: bytes
    alert_id: int
    object_id: str
    mjd: float


def simulated(count: int, fields: Fields) -> list[Sent]:
    mix = Mix(lsst_share=0.5, corrupt=0, duplicates=0, null_cutouts=0)
    found = []
    for alert in Simulator(6, fields, mix).alerts(count):
        head = oracle.head(alert.body)
        found.append(Sent(alert.body, head["alert_id"], head["object_id"], head["mjd"]))
    return found


@pytest.fixture(scope="module")
def sent() -> list[Sent]:
    """Alerts of both surveys, many of each object."""
    return simulated(40, Fields(objects=3))


@pytest.mark.parametrize(
    ("count", "points"), [(40, 1_000), pytest.param(1000, 50_000, marks=pytest.mark.nightly)]
)
def test_as_of_an_alert_is_its_history_as_fastavro_decodes_it(
    settings: Settings, read: Reader, count: int, points: int
) -> None:
    """Point for point, of both surveys, in one request."""
    sent = simulated(count, Fields.of_history(100, objects=12))
    store(settings, [each.message for each in sent])
    found = ask(read, "alert", [each.alert_id for each in sent])
    assert found[1:] == ([], [], [])
    assert found.rows.schema.equals(TOLD)
    assert found.rows.num_rows > points
    assert {*found.rows["survey"].to_pylist()} == {"lsst", "ztf"}
    order = found.rows.select(["alert_id", "mjd"]).to_pylist()
    assert order == sorted(order, key=lambda row: (row["alert_id"], row["mjd"]))
    told = by_alert(found.rows)
    assert told.keys() == {each.alert_id for each in sent}
    for each in sent:
        assert_same_rows(told[each.alert_id], history(each.message))


@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="needs the real alerts")
def test_as_of_real_alerts(settings: Settings, read: Reader) -> None:
    messages = {oracle.head(each)["alert_id"]: each for each in made_alerts.real_alerts()[::3]}
    store(settings, [*messages.values()])
    told = by_alert(ask(read, "alert", [*messages]).rows)
    for alert_id, message in messages.items():
        assert_same_rows(told[alert_id], history(message))


def test_as_of_a_time_each_object_is_as_with_its_latest_alert_until_then(
    settings: Settings, read: Reader, sent: list[Sent]
) -> None:
    store(settings, [each.message for each in sent])
    in_time = sorted(sent, key=lambda each: each.mjd)
    names = sorted({each.object_id for each in sent})
    some = [in_time[number].mjd for number in (len(sent) // 4, len(sent) // 2, -1)]
    for until in (mjd + 1e-6 for mjd in some):  # the last bits of the oracle's may differ
        latest = {each.object_id: each for each in in_time if each.mjd <= until}
        found = ask(read, until, [*names, "ZTF18nothere"])
        assert found.unreadable == found.incomplete == []
        assert found.missing == sorted({*names, "ZTF18nothere"} - latest.keys())
        told = by_alert(found.rows)
        assert told.keys() == {each.alert_id for each in latest.values()}
        for each in latest.values():
            assert_same_rows(told[each.alert_id], history(each.message))
        assert found.rows["object_id"].to_pylist() == sorted(found.rows["object_id"].to_pylist())
    assert len(latest) == len(names) > 3


def test_each_format_has_the_rows_and_the_filters_are_those_of_all_points(
    settings: Settings, read: Reader, sent: list[Sent]
) -> None:
    store(settings, [each.message for each in sent])
    ids = [each.alert_id for each in sent]
    body = "\n".join(map(str, ids)).encode()
    whole = ask(read, "alert", ids)
    arrow = read(f"{PATH}&asof=alert", "POST", body).data
    assert pa.ipc.open_stream(arrow).read_all().equals(whole.rows)
    csv = pa_csv.read_csv(BytesIO(read(f"{PATH}&asof=alert&format=csv", "POST", body).data))
    assert csv.column_names == ["alert_id", *DETECTION.names]
    assert csv["alert_id"].equals(whole.rows["alert_id"])
    some = ask(read, "alert", ids, "&forced=false&band=r&magnitudes=true").rows
    assert some.column_names == [*TOLD.names, "mag", "mag_err"]
    wanted = [row for row in whole.rows.to_pylist() if row["band"] == "r" and not row["forced"]]
    assert some["source_id"].to_pylist() == [row["source_id"] for row in wanted]
    assert 0 < len(wanted) < whole.rows.num_rows
    flux = next(row["flux"] for row in wanted if (row["flux"] or 0) > 0)
    mag = next(row["mag"] for row in some.to_pylist() if (row["flux"] or 0) > 0)
    assert math.isclose(mag, 31.4 - 2.5 * math.log10(flux), rel_tol=1e-6)


def test_an_alert_without_its_packet_has_no_rows_and_is_listed(
    settings: Settings, read: Reader, sent: list[Sent]
) -> None:
    first, *others = sent
    store(settings, [first.message], functions=[cutouts])
    store(settings, [each.message for each in others], first=1)
    ids = [*(each.alert_id for each in sent), 404]
    found = ask(read, "alert", ids)
    assert (found.missing, found.unreadable) == (["404"], [str(first.alert_id)])
    assert found.incomplete == ["no packet of that time is kept"]
    assert by_alert(found.rows).keys() == {each.alert_id for each in others}
    with pytest.raises(urllib3.exceptions.HTTPError):
        read(f"{PATH}&asof=alert&format=csv", "POST", "\n".join(map(str, ids)).encode())


def test_an_earlier_packet_does_not_stand_for_a_later_one(settings: Settings, read: Reader) -> None:
    """If the latest alert has none, nobody can say what was known: one object, or many."""
    store(settings, [ztf_with_images(1, 59_000.0)])
    store(settings, [ztf_with_images(2, 59_001.0)], first=1)
    name = "ZTF18aaaaaaa"
    assert by_alert(ask(read, 59_002, [name]).rows).keys() == {2}
    objects = open_objects(settings)
    kept = {info.key for info in objects.list("packets/59000/")}
    for info in [*objects.list("packets/")]:
        if info.key not in kept:
            objects.delete(info.key)
    found = ask(read, 59_002, [name])
    assert (found.rows.num_rows, found.missing, found.unreadable) == (0, [], [name])
    assert found.incomplete == ["a packet is damaged"]
    assert by_alert(ask(read, 59_000.5, [name]).rows).keys() == {1}
    expired = settings.model_copy(update={"packet_days": 1})
    for old in serving(make_app(expired)):
        found = ask(old, 59_002, [name])
        assert (found.rows.num_rows, found.unreadable) == (0, [name])
        assert found.incomplete == ["no packet of that time is kept"]
        got = old(f"/v1/objects/{name}/lightcurve?asof=59002")
        assert "no packet of that time is kept" in got.headers["stampede-incomplete"]


def test_where_no_detection_is_known_as_an_alert_nothing_is_guessed(
    settings: Settings, read: Reader
) -> None:
    """Its points alone are stored, more of them than are asked for."""
    points = [made_alerts.ztf_record(n)["candidate"] | {"jd": 2459000.5 + n} for n in range(1, 90)]
    message = made_alerts.ztf_alert(99, candidate=points[0], prv_candidates=points[1:])
    assert len(points) > ROUNDS[-1]
    store(settings, [message])
    for info in [*open_objects(settings).list("tables/")]:
        if not info.key.startswith("tables/detections/"):
            open_objects(settings).delete(info.key)
    found = ask(read, 99_000, ["ZTF18aaaaaaa"])
    assert (found.rows.num_rows, found.unreadable) == (0, ["ZTF18aaaaaaa"])


def test_an_id_of_both_surveys_of_which_one_packet_is_kept_is_listed() -> None:
    objects = sample_store()
    keep(objects, BOTH, "ZTF18aaaaaaa", 59000.0)
    for read in serving(make_app(Settings(), objects)):
        found = ask(read, "alert", [BOTH])
        assert {*found.rows["survey"].to_pylist()} == {"ztf"}
        assert (found.missing, found.unreadable) == ([], [str(BOTH)])


def test_a_packet_that_is_too_large_is_listed(
    settings: Settings, read: Reader, sent: list[Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(settings, [each.message for each in sent])
    sizes = sorted(len(oracle.unframe(each.message)[1]) for each in sent)
    monkeypatch.setattr(stored_records, "MOST_BYTES", sizes[len(sent) // 2])
    found = ask(read, "alert", [each.alert_id for each in sent])
    assert 0 < len(found.unreadable) < len(sent)
    assert found.incomplete == ["the packet of that time is too large to decode here"]
    told = {*map(str, by_alert(found.rows))}
    assert told | {*found.unreadable} == {str(each.alert_id) for each in sent}
    assert not told & {*found.unreadable}


def test_points_of_other_programmes_are_not_shown(settings: Settings, read: Reader) -> None:
    stored = settings.model_copy(update={"ztf_programids": "1,2"})
    messages = [mixed_programmes.mixed_alert(8_000_001)]
    store(stored, messages)
    found = ask(read, "alert", [8_000_001])
    assert found.rows.num_rows == 0
    for both in serving(make_app(stored)):
        assert {*ask(both, "alert", [8_000_001]).rows["programid"].to_pylist()} == {1, 2}


@pytest.mark.parametrize("wrong", ["", "yesterday", "-1", "nan", "1642404680815015001"])
def test_a_time_that_is_none_is_named(settings: Settings, read: Reader, wrong: str) -> None:
    got = read(f"{PATH}&asof={wrong}", "POST", b"ZTF18aaaaaaa")
    assert (got.status, got.json()["parameter"]) == (400, "asof")
    assert "or 'alert' if the ids are of alerts" in got.json()["detail"]


def test_objects_are_no_alerts(settings: Settings, read: Reader) -> None:
    got = read(f"{PATH}&asof=alert", "POST", b"ZTF18aaaaaaa")
    assert (got.status, got.json()["parameter"]) == (400, "ids")
