"""Rubin's forced points: one for each object, visit and detector, whatever its id."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.schema import DETECTIONS
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_batch_decoder

LATEST_MJD = 62000.0
PLACE = {"visit": 2026040700201, "detector": 93}
TIME = "timeProcessedMjdTai"


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> BatchDecoder:
    return make_batch_decoder(tmp_path_factory.mktemp("spool"), LATEST_MJD)


def forced_source(**changes) -> dict:
    rows = (made_alerts.rubin_record(1101, seed)["prvDiaForcedSources"] for seed in range(9))
    row = next(rows for rows in rows if rows)[0]
    return row | PLACE | {TIME: 61000.0, "timeWithdrawnMjdTai": None} | changes


def forced_points(decoder: BatchDecoder, *alerts: list[dict]) -> list[dict]:
    """The merged forced points of alerts of one object that have these diaForcedSources."""
    messages = []
    for number, rows in enumerate(alerts):
        record = made_alerts.rubin_record(1101, 3)
        record["diaSource"] |= {"diaSourceId": 1000 + number, "diaObjectId": 77}
        messages.append(made_alerts.confluent(record | {"prvDiaForcedSources": rows}, 1101))
    found = [decoder.detections([message]) for message in messages]
    assert [one.faults for one in found] == [[None]] * len(alerts)
    rows = sort_unique(pa.concat_tables([one.rows for one in found]), DETECTIONS)
    return [row for row in rows.to_pylist() if row["forced"]]


@pytest.mark.parametrize("order", [1, -1])
def test_a_visit_that_is_processed_again_replaces_its_points(decoder, order: int) -> None:
    first = forced_source(diaForcedSourceId=170587115523932323, psfFlux=1.0)
    again = forced_source(diaForcedSourceId=170587999999999999, psfFlux=2.0, **{TIME: 61000.5})
    [point] = forced_points(decoder, *[[first], [again]][::order])
    assert point["flux"] == 2.0
    assert point["source_id"] == 2026040700201093


def test_other_detectors_and_visits_are_other_points(decoder) -> None:
    places = [PLACE, PLACE | {"detector": 94}, PLACE | {"visit": PLACE["visit"] + 1}]
    rows = [forced_source(diaForcedSourceId=5, **place) for place in places]
    points = forced_points(decoder, rows)
    assert [{name: row[name] for name in PLACE} for row in points] == places


def test_a_detector_that_does_not_fit_leaves_the_point_its_id(decoder) -> None:
    """Such a detector or visit could make the number of another one."""
    odd = [PLACE | {"detector": 1000}, PLACE | {"detector": -1}]
    odd += [PLACE | {"visit": -1}, PLACE | {"visit": 2**63 // 1000}]
    rows = [forced_source(diaForcedSourceId=n, **place) for n, place in enumerate(odd, 1)]
    assert {row["source_id"] for row in forced_points(decoder, rows)} == {1, 2, 3, 4}


def test_a_schema_without_detectors_keeps_the_ids(decoder) -> None:
    records = (made_alerts.rubin_record(400, seed) for seed in range(9))
    record = next(record for record in records if record["prvDiaForcedSources"])
    record["prvDiaForcedSources"] = [record["prvDiaForcedSources"][0] | {"diaForcedSourceId": 9}]
    found = decoder.detections([made_alerts.confluent(record, 400)])
    assert found.faults == [None]
    forced = [row for row in found.rows.to_pylist() if row["forced"]]
    assert forced
    assert {row["source_id"] for row in forced} == {9}


@given(
    st.lists(
        st.tuples(st.integers(1, 2**62), st.integers(0, 300), st.integers(1, 2**62)),
        min_size=1,
        max_size=8,
        unique_by=lambda place: place[:2],
    )
)
def test_no_two_places_share_a_point(decoder, places: list[tuple[int, int, int]]) -> None:
    rows = [
        forced_source(visit=visit, detector=detector, diaForcedSourceId=number * 10 + 1)
        for number, (visit, detector, _) in enumerate(places)
    ]
    assert len(forced_points(decoder, rows)) == len(places)
