"""Alerts that show a body of the solar system have a row in `moving`, and no other has one."""

import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from stampede.alerts.batch_parts import Decoded
from stampede.alerts.columns import MOVING
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.alerts.made_alerts import confluent, contained, rubin_record, ztf_record

CANDID = 2430301980815015000


@pytest.fixture(scope="module")
def decode(tmp_path_factory: pytest.TempPathFactory):
    decoder = make_batch_decoder(tmp_path_factory.mktemp("decoder"))

    def decoded(messages: list[bytes]) -> Decoded:
        found = decoder.detections(messages)
        assert not any(found.faults), found.faults
        assert found.moving.schema.equals(MOVING)
        return found

    return decoded


def near(name: str | None, distance: float | None, **changes) -> bytes:
    """An alert of ZTF whose nearest body is that."""
    schema = made_alerts.ztf_schema()
    candidate = next(each for each in schema["fields"] if each["name"] == "candidate")["type"]
    candidate["fields"] += [
        {"name": "ssnamenr", "type": ["null", "string"]},
        {"name": "ssdistnr", "type": ["null", "float"]},
        {"name": "ssmagnr", "type": ["null", "float"]},
    ]
    record = ztf_record(**changes)
    record["candidate"] |= {"ssnamenr": name, "ssdistnr": distance, "ssmagnr": 19.5}
    return contained([record], json.loads(json.dumps(schema)))


def test_ztf_names_the_body(decode) -> None:
    [row] = decode([near("45685", 1.0)]).moving.to_pylist()
    assert row["designation"] == "45685"
    assert (row["survey"], row["alert_id"], row["object_id"]) == ("ztf", CANDID, "ZTF18aaaaaaa")
    assert (row["offset"], row["predicted_mag"], row["programid"]) == (1.0, 19.5, 1)
    assert row["flux"] == pytest.approx(10 ** ((31.4 - 18.0) / 2.5), rel=1e-6)
    assert row["reliability"] == pytest.approx(0.9)
    assert row["phase_angle"] is None


@pytest.mark.parametrize(
    ("name", "distance"),
    [("null", -999.0), (None, None), ("", 1.0), ("45685", 5.1), ("45685", None), ("45685", -1.0)],
)
def test_an_alert_of_no_body_has_no_row(decode, name: str | None, distance: float | None) -> None:
    assert decode([near(name, distance)]).moving.num_rows == 0


def test_a_name_that_is_too_long_harms_nothing(decode) -> None:
    found = decode([near("x" * 65, 0.5), near("x" * 64, 0.5)])
    assert found.moving["designation"].to_pylist() == ["x" * 64]
    assert found.rows.num_rows


def of_rubin(version: int, **of_source) -> bytes:
    record = rubin_record(version, 5)
    orbit = "MPCORB" if version < 1000 else "mpc_orbits"
    types = made_alerts.rubin_schemas()[version]["fields"]
    for name in ("ssSource", orbit):
        kind = next(each["type"] for each in types if each["name"] == name)
        record[name] = made_alerts.fill(kind[1], made_alerts.random.Random(1), {})
    record[orbit] = None
    record["ssSource"] |= of_source
    record["diaSource"]["psfFlux"] = 4096.0
    return confluent(record, version)


def test_rubin_names_the_body_and_where_it_was(decode) -> None:
    message = of_rubin(
        1000,
        designation="2011 UW158",
        phaseAngle=12.5,
        helioRange=2.7,
        topoRange=1.9,
        ephVmag=21.25,
        ephOffset=0.125,
    )
    [row] = decode([message]).moving.to_pylist()
    assert row["designation"] == "2011 UW158"
    assert row["phase_angle"] == 12.5
    assert row["helio_distance"] == pytest.approx(2.7)
    assert row["topo_distance"] == pytest.approx(1.9)
    assert (row["predicted_mag"], row["offset"]) == (21.25, 0.125)
    assert row["flux"] == 4096.0
    assert row["programid"] is None


def test_a_packed_designation_of_an_early_schema_is_unpacked(decode) -> None:
    record = rubin_record(800, 5)
    types = made_alerts.rubin_schemas()[800]["fields"]
    kind = next(each["type"] for each in types if each["name"] == "MPCORB")
    record["MPCORB"] = made_alerts.fill(kind[1], made_alerts.random.Random(1), {})
    record["MPCORB"]["mpcDesignation"] = "K11UF8W"
    record["ssSource"] = None
    [row] = decode([confluent(record, 800)]).moving.to_pylist()
    assert row["designation"] == "2011 UW158"
    assert row["helio_distance"] is None


@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="no real alerts are here")
def test_real_alerts_of_ztf_name_their_bodies(decode) -> None:
    """As fastavro reads them."""
    files = [*Path(made_alerts.REAL).glob("ztf*/*.avro")]
    expected = set()
    for file in files:
        with file.open("rb") as opened:
            records: list[Any] = [*fastavro.reader(opened)]
            for record in records:
                candidate = record["candidate"]
                if candidate["ssnamenr"] not in (None, "null") and candidate["ssdistnr"] <= 5:
                    expected.add((record["candid"], candidate["ssnamenr"]))
    rows = decode([file.read_bytes() for file in files]).moving
    assert len(expected) >= 30
    assert expected == {(row["alert_id"], row["designation"]) for row in rows.to_pylist()}


def test_the_own_measurement_wins_over_its_copy_in_a_history(decode) -> None:
    """The later alert of the batch carries a rounded copy of the earlier detection."""
    copy = ztf_record()["candidate"] | {"magpsf": 18.5, "candid": CANDID}
    messages = [
        near("45685", 1.0),
        near(None, None, candid=CANDID + 1, prv_candidates=[{**copy, "drb": None}]),
    ]
    [row] = decode(messages).moving.to_pylist()
    assert row["flux"] == pytest.approx(10 ** ((31.4 - 18.0) / 2.5), rel=1e-6)


def test_a_survey_without_bodies_has_no_rows(decode) -> None:
    found = decode([made_alerts.ztf_alert()])
    assert isinstance(found.moving, pa.Table)
    assert found.moving.num_rows == 0
