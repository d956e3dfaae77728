"""Light curves as the survey told them at an earlier time."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.alerts.columns import DETECTION
from stampede.config.settings import Settings
from stampede.handlers import cutouts
from stampede.lookup import stored_records
from stampede.lookup.points import in_time
from stampede.read.app import make_app
from stampede.store.open import open_objects
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.schema import DETECTIONS
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.alerts import made_alerts, mixed_programmes
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.read.read_service import Reader, serving
from tests.support.store.stored_packets import store

SIMULATED = 60


@pytest.fixture
def read(settings: Settings) -> Iterator[Reader]:
    yield from serving(make_app(settings))


class Sent:
    """An alert, and its points as the functions decode them."""

    def __init__(self, message: bytes, directory: Path) -> None:
        decoded = make_batch_decoder(directory).detections([message])
        head = decoded.groups[0].heads.to_pylist()[0]
        self.message = message
        self.alert_id, self.object_id, self.mjd = head["alert_id"], head["object_id"], head["mjd"]
        self.rows = in_time(sort_unique(decoded.rows, DETECTIONS))


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> list[Sent]:
    """Alerts of both surveys, many of each object, their histories changed from one to the next."""
    mix = Mix(lsst_share=0.5, solar_system=0, corrupt=0, duplicates=0, null_cutouts=0)
    simulator = Simulator(4, Fields(objects=3), mix)
    directory = tmp_path_factory.mktemp("decoder")
    return [Sent(alert.body, directory) for alert in simulator.alerts(SIMULATED)]


def answer(read: Reader, object_id: str, asof: object, more: str = "") -> tuple[pa.Table, dict]:
    path = f"/v1/objects/{object_id}/lightcurve?format=parquet&withdrawn=true&asof={asof}{more}"
    got = read(path)
    assert got.status == 200, got.data
    table = pq.read_table(pa.BufferReader(got.data), schema=DETECTION)
    return table.replace_schema_metadata(), dict(got.headers)


def check_all(read: Reader, sent: list[Sent]) -> int:
    """As of each alert, by its id, its light curve is its own history; returns the points."""
    for each in sent:
        found, headers = answer(read, each.object_id, each.alert_id)
        assert headers["stampede-as-of"] == str(each.alert_id)
        assert "stampede-incomplete" not in headers
        assert found.equals(each.rows.cast(found.schema)), each.alert_id
    return sum(each.rows.num_rows for each in sent)


def test_as_of_an_alert_is_the_history_in_its_packet(
    settings: Settings, read: Reader, sent: list[Sent]
) -> None:
    store(settings, [each.message for each in sent])
    assert check_all(read, sent) > 10 * len(sent)


@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="needs the real alerts")
def test_as_of_real_alerts(settings: Settings, read: Reader, tmp_path: Path) -> None:
    messages = [*dict.fromkeys(made_alerts.real_alerts())][::3]
    store(settings, messages)
    assert check_all(read, [Sent(message, tmp_path) for message in messages]) > 1000


def test_as_of_a_time_is_the_latest_alert_until_then(
    settings: Settings, read: Reader, sent: list[Sent]
) -> None:
    store(settings, [each.message for each in sent])
    by_object: dict[str, list[Sent]] = {}
    for each in sorted(sent, key=lambda one: one.mjd):
        by_object.setdefault(each.object_id, []).append(each)
    several = {name: alerts for name, alerts in by_object.items() if len(alerts) > 2}
    assert len(several) > 3
    for name, (first, second, *_) in several.items():
        for asof in (first.mjd, (first.mjd + second.mjd) / 2):
            found, headers = answer(read, name, asof)
            assert headers["stampede-as-of"] == str(first.alert_id)
            assert found.equals(first.rows.cast(found.schema))
        latest, _ = answer(read, name, 99_000)
        assert latest["mjd"].to_pylist()[-1] >= several[name][-1].mjd
    name, (first, *_) = next(iter(several.items()))
    got = read(f"/v1/objects/{name}/lightcurve?asof=51544")
    assert (got.status, got.json()["type"]) == (404, "urn:stampede:problem:unknown-object")
    assert f"nothing was known of object {name} at MJD 51544" in got.json()["detail"]


def test_other_parameters_choose_among_the_points_of_then(
    settings: Settings, read: Reader, sent: list[Sent]
) -> None:
    store(settings, [each.message for each in sent])
    each = max(sent, key=lambda one: one.rows.num_rows)
    found, _ = answer(read, each.object_id, each.alert_id, f"&forced=false&end={each.mjd - 1}")
    wanted = [
        row["mjd"]
        for row in each.rows.to_pylist()
        if not row["forced"] and row["mjd"] <= each.mjd - 1
    ]
    assert found["mjd"].to_pylist() == wanted
    assert 0 < len(wanted) < each.rows.num_rows


def test_without_a_packet_the_points_are_those_of_the_table_and_the_answer_says_so(
    settings: Settings, read: Reader, sent: list[Sent]
) -> None:
    store(settings, [each.message for each in sent])
    for info in [*open_objects(settings).list("tables/packets/")]:
        open_objects(settings).delete(info.key)
    alerts = [each for each in sent if each.object_id == sent[0].object_id]
    middle = sorted(alerts, key=lambda one: one.mjd)[len(alerts) // 2]
    found, headers = answer(read, middle.object_id, middle.alert_id)
    assert "stampede-as-of" not in headers
    assert "no packet of that time is kept" in headers["stampede-incomplete"]
    assert headers["cache-control"] == "no-store"
    assert 0 < found["mjd"].to_pylist()[-1] <= middle.mjd
    json = read(f"/v1/objects/{middle.object_id}/lightcurve?asof={middle.mjd}").json()
    assert "no packet of that time is kept" in json["incomplete"][0]


def test_a_packet_that_is_too_large_is_told(
    settings: Settings, read: Reader, sent: list[Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(settings, [each.message for each in sent])
    monkeypatch.setattr(stored_records, "MOST_BYTES", 1000)
    found, headers = answer(read, sent[0].object_id, sent[0].alert_id)
    assert "too large to decode" in headers["stampede-incomplete"]
    assert found.num_rows > 0


@pytest.mark.parametrize(("stored", "whole"), [("1", True), ("1,2", False)])
def test_points_of_other_programmes_are_not_shown(
    settings: Settings, read: Reader, stored: str, whole: bool
) -> None:
    """Neither those that were never stored, nor those that were, of which readers get nothing."""
    message = mixed_programmes.mixed_alert(8_000_001)
    store(settings.model_copy(update={"ztf_programids": stored}), [message])
    found, headers = answer(read, "ZTF18aaaaaaa", 8_000_001)
    assert {*found["programid"].to_pylist()} == {1}
    assert found.num_rows > 1
    assert ("stampede-as-of" in headers) == whole


def test_an_alert_of_another_object_is_none_of_this(
    settings: Settings, read: Reader, sent: list[Sent]
) -> None:
    store(settings, [each.message for each in sent])
    one, other = sent[0], next(each for each in sent if each.object_id != sent[0].object_id)
    got = read(f"/v1/objects/{one.object_id}/lightcurve?asof={other.alert_id}")
    assert (got.status, got.json()["type"]) == (404, "urn:stampede:problem:unknown-alert")


@pytest.mark.parametrize("wrong", ["", "yesterday", "-1", "nan", "9" * 30])
def test_a_time_that_is_none_is_named(settings: Settings, read: Reader, wrong: str) -> None:
    store(settings, [made_alerts.ztf_alert(7)], functions=[cutouts])
    got = read(f"/v1/objects/ZTF18aaaaaaa/lightcurve?asof={wrong}")
    assert (got.status, got.json()["parameter"]) == (400, "asof")
