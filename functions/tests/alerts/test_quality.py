"""Columns that say whether a point of a light curve can be trusted."""

import math
import re
from pathlib import Path

import pytest

from stampede.alerts.columns import FLAGS
from tests.support.alerts import made_alerts
from tests.support.alerts.avro_reading import records
from tests.support.alerts.batch_decoders import make_batch_decoder

PAGE = Path(__file__).parents[3] / "docs" / "columns.md"
VALUES = {
    name: int(value) for value, name in re.findall(r"^\| (\d+) \| `(\w+)`", PAGE.read_text(), re.M)
}


@pytest.fixture
def decoder(tmp_path):
    return make_batch_decoder(tmp_path)


def own_points(decoder, messages) -> list[dict]:
    """The alerts' own detections, by id."""
    found = decoder.detections(messages)
    assert found.faults == [None] * len(messages)
    rows = [row for row in found.rows.to_pylist() if not row["forced"] and not row["limit"]]
    return sorted(rows, key=lambda row: row["source_id"])


def rubin(number: int, version: int, flags: dict) -> bytes:
    record = made_alerts.rubin_record(version, number)
    record["prvDiaSources"] = record["prvDiaForcedSources"] = None
    source = record["diaSource"]
    for name in FLAGS:
        if name in source:
            source[name] = False
    source |= {"diaSourceId": number + 1, "diaObjectId": 7} | flags
    record["diaSourceId"] = number + 1
    return made_alerts.confluent(record, version)


def test_each_flag_of_rubin_is_the_documented_bit(decoder):
    names = [*VALUES]
    messages = [rubin(number, 1101, {name: True}) for number, name in enumerate(names)]
    assert [row["flags"] for row in own_points(decoder, messages)] == [*VALUES.values()]
    assert len({*VALUES.values()}) == len(names) == len(FLAGS) <= 31


def test_flags_add_up(decoder):
    (row,) = own_points(decoder, [rubin(0, 1101, {"isDipole": True, "psfFlux_flag": True})])
    assert row["flags"] == VALUES["isDipole"] + VALUES["psfFlux_flag"]


def test_a_flag_that_was_not_sent_is_not_set(decoder):
    some = {name: None for name in FLAGS if name != "shape_flag"}
    messages = [rubin(0, 1101, some), rubin(1, 1101, some | {"shape_flag": True})]
    assert [row["flags"] for row in own_points(decoder, messages)] == [0, VALUES["shape_flag"]]


@pytest.mark.parametrize(("version", "flags"), [(601, None), (700, 0), (1000, 0)])
def test_schemas_without_flags_have_null(decoder, version, flags):
    assert [row["flags"] for row in own_points(decoder, [rubin(0, version, {})])] == [flags]


def test_an_alert_that_sends_no_flag_has_null(decoder):
    assert own_points(decoder, [rubin(0, 1101, dict.fromkeys(FLAGS))])[0]["flags"] is None


def test_rubins_forced_points_have_no_flags(decoder):
    record = made_alerts.rubin_record(1101, 0)
    source = made_alerts.rubin_record(1101, 1)["diaSource"]
    forced = made_alerts.rubin_record(1101, 2)["prvDiaForcedSources"] or [
        row
        for seed in range(3, 30)
        for row in made_alerts.rubin_record(1101, seed)["prvDiaForcedSources"] or []
    ]
    record |= {"prvDiaSources": [source], "prvDiaForcedSources": forced}
    rows = decoder.detections([made_alerts.confluent(record, 1101)]).rows.to_pylist()
    assert {row["flags"] is None for row in rows if row["forced"]} == {True}
    assert {row["flags"] is None for row in rows if not row["forced"]} == {False}


def test_ztf_says_how_a_point_was_made(decoder):
    schema, record = made_alerts.ztf_schema(), made_alerts.ztf_record()
    candidate = record["candidate"] | {"rb": 0.75, "drb": 0.875, "diffmaglim": 20.5}
    seen = candidate | {"candid": 11, "jd": 2459990.5, "pid": 11, "rb": 0.25, "diffmaglim": 19.5}
    limit = seen | dict.fromkeys(("magpsf", "sigmapsf", "ra", "dec", "isdiffpos", "rb", "candid"))
    limit |= {"pid": 12, "jd": 2459991.5}
    forced = {"jd": 2459992.5, "fid": 1, "rcid": 3, "magzpsci": 26.0}
    forced |= {"forcediffimflux": 100.0, "forcediffimfluxunc": 5.0}
    record |= {
        "candidate": candidate,
        "prv_candidates": [seen, limit],
        "fp_hists": [
            forced | {"pid": 13, "procstatus": "0", "diffmaglim": 21.0},
            forced | {"pid": 14, "procstatus": "56,61", "diffmaglim": -99999.0},
            forced | {"pid": 15, "procstatus": None, "diffmaglim": None},
        ],
    }
    columns = ("source_id", "procstatus", "limiting_mag", "rb", "reliability", "flags")
    rows = decoder.detections([made_alerts.contained([record], schema)]).rows.to_pylist()
    assert sorted(tuple(row[name] for name in columns) for row in rows) == [
        (11, None, 19.5, 0.25, None, None),
        (12, None, 19.5, None, None, None),
        (13, "0", 21.0, None, None, None),
        (14, "56,61", None, None, None, None),
        (15, None, None, None, None, None),
        (record["candid"], None, 20.5, 0.75, pytest.approx(0.875), None),
    ]


def test_ztfs_numbers_for_none_are_null(decoder):
    for none in (-999.0, -99999.0, math.nan, None):
        candidate = made_alerts.ztf_record()["candidate"] | {"rb": none, "diffmaglim": none}
        (row,) = own_points(decoder, [made_alerts.ztf_alert(candidate=candidate)])
        assert row["rb"] is row["limiting_mag"] is None


@pytest.mark.skipif(
    not made_alerts.REAL.is_dir(), reason="the real alerts (../shared/data) are not here"
)
@pytest.mark.real
def test_real_forced_photometry_keeps_its_status(decoder):
    paths = sorted(made_alerts.REAL.glob("ztf-forced/*.avro"))
    sent = {}
    for path in paths:
        (record,) = records(path.read_bytes())
        points = record["fp_hists"] or []
        sent |= {(record["objectId"], row["pid"]): row["procstatus"] for row in points}
    rows = decoder.detections([path.read_bytes() for path in paths]).rows.to_pylist()
    forced = [row for row in rows if row["forced"]]
    assert {(row["object_id"], row["source_id"]): row["procstatus"] for row in forced} == sent
    assert {"0", "61"} <= {*sent.values()}
