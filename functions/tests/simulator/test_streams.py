"""Streams as they really run: long histories, full rows, late and missing alerts, restarts."""

import gzip
import io
from collections import Counter
from itertools import pairwise

import fastavro
import numpy as np
import pytest

from stampede.alerts import schemas
from stampede.alerts.surveys.rubin_schemas import NEWEST_RUBIN, rubin_schemas
from stampede.store.parquet import zstd
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.lsst import OLDER_RUBIN
from stampede_simulator.simulator import FIELDS, RECENT, Fields, Mix, Simulator
from stampede_simulator.sky import FIRST_NIGHT
from tests.support.alerts import made_alerts

LSST = Mix(lsst_share=1.0, solar_system=0.0, null_cutouts=0.0)
ROW = 143  # bytes of a real history row in a packet, compressed alone by Zstandard's level 1


def alerts(count: int, fields: Fields = FIELDS, mix: Mix = LSST) -> list[SimulatedAlert]:
    return list(Simulator(1, fields, mix, keep_light_curves=False).alerts(count))


def decoded(body: bytes) -> dict:
    version = int.from_bytes(body[1:5])
    schema = schemas.parsed(rubin_schemas()[version])
    return fastavro.schemaless_reader(io.BytesIO(body[5:]), schema, None)  # type: ignore[return-value]


def packet_bytes(body: bytes) -> tuple[int, int]:
    """History rows of an alert, and its bytes without images, compressed."""
    record = decoded(body)
    for name in ("cutoutScience", "cutoutTemplate", "cutoutDifference"):
        if record[name]:
            body = body.replace(record[name], b"")
    rows = (record["prvDiaSources"] or []) + (record["prvDiaForcedSources"] or [])
    return len(rows), len(zstd.compress(body))


def bytes_per_row(bodies: list[bytes]) -> float:
    rows, size = np.array([packet_bytes(body) for body in bodies]).sum(axis=0)
    return float(size / rows)


@pytest.mark.long
@pytest.mark.parametrize("rows", [20, 250, pytest.param(573, marks=pytest.mark.nightly)])
def test_histories_have_any_length(rows: int) -> None:
    lengths = [len(alert.points) - 1 for alert in alerts(90, Fields.of_history(rows))]
    assert 0.75 * rows < np.mean(lengths) < 1.3 * rows
    assert min(lengths) < 0.1 * rows
    assert max(lengths) > 1.5 * rows


@pytest.mark.long
def test_a_row_is_as_heavy_as_a_real_one() -> None:
    found = bytes_per_row([alert.body for alert in alerts(40, Fields.of_history(250))])
    assert 0.9 * ROW < found < 1.1 * ROW


@pytest.mark.real
@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="needs the real alerts")
def test_the_row_that_is_compared_with_is_real() -> None:
    paths = sorted((made_alerts.REAL / "lsst").glob("*.avro.gz"))
    bodies = [gzip.decompress(path.read_bytes()) for path in paths]
    assert bytes_per_row(bodies) > ROW  # of these most rows are diaSources, the larger ones


def test_late_alerts_come_after_others_and_none_is_lost() -> None:
    mix = Mix(lsst_share=1.0, solar_system=0.0, late=0.3)
    ordered, late = alerts(600), alerts(600, mix=mix)
    places = {alert.alert_id: number for number, alert in enumerate(ordered)}
    order = [places[alert.alert_id] for alert in late if alert.alert_id in places]
    assert len(set(order)) == len(order)
    assert sum(a > b for a, b in pairwise(order)) > 60
    assert {*range(600 - 2 * RECENT)} <= {*order}


def test_an_alert_that_is_not_sent_is_in_later_histories() -> None:
    mix = Mix(lsst_share=1.0, solar_system=0.0, missing=0.2)
    all_ids = [alert.alert_id for alert in alerts(800)]
    sent = alerts(500, mix=mix)
    ids = {alert.alert_id for alert in sent}
    missing = {*all_ids[:500]} - ids
    assert 50 < len(missing) < 200
    known = {point.source_id for alert in sent for point in alert.points if not point.forced}
    assert len(missing & known) > 20


def test_a_sender_that_restarts_sends_its_last_alerts_again() -> None:
    sent = alerts(1500, mix=Mix(lsst_share=1.0, solar_system=0.0, restarts=0.002))
    again = [number for number, alert in enumerate(sent) if alert.duplicate]
    assert len(again) >= RECENT
    first = again[0]
    block = sent[first : first + RECENT]
    assert [alert.body for alert in block] == [alert.body for alert in sent[first - RECENT : first]]
    assert max(Counter(alert.body for alert in sent).values()) >= 2


def test_the_schema_changes_in_mid_stream() -> None:
    sent = alerts(700, Fields(objects=30, nights=30, upgrade_night=12))
    by_version = {OLDER_RUBIN: 0, NEWEST_RUBIN: 0}
    for alert in sent:
        version = int.from_bytes(alert.body[1:5])
        assert version == (NEWEST_RUBIN if alert.mjd >= FIRST_NIGHT + 12 else OLDER_RUBIN)
        record = decoded(alert.body)
        history = record["prvDiaSources"] or []
        assert ("exposureTime" in record["diaSource"]) == (version == NEWEST_RUBIN)
        ids = {point.source_id for point in alert.points if not point.forced}
        assert {row["diaSourceId"] for row in history} | {alert.alert_id} == ids
        by_version[version] += 1
    assert min(by_version.values()) > 100


@pytest.mark.parametrize("fields", [{"rows": 0}, {"rows": 2001}])
def test_a_history_that_nobody_has_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="rows must be 1 to 2000"):
        Fields.of_history(**fields)
    with pytest.raises(ValueError, match="missing must be below 1"):
        Mix(missing=1.0)
    with pytest.raises(ValueError, match="late must be below 1"):
        Mix(late=1.0)
