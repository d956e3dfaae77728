"""Vectorised decoding compared with fastavro: every schema, every real alert, odd values."""

import gzip
import math

import pyarrow as pa
import pytest

from stampede.alerts.isolation import Isolation
from stampede.alerts.surveys.rubin_schemas import RUBIN_VERSIONS
from tests.support.alerts import made_alerts
from tests.support.alerts.oracle_comparison import (
    assert_as_the_oracle,
    assert_once_as_twice,
)

REAL = pytest.mark.skipif(
    not made_alerts.REAL.is_dir(), reason="the real alerts (../shared/data) are not here"
)


@pytest.mark.parametrize("version", RUBIN_VERSIONS)
def test_every_rubin_schema(decoder, version: int) -> None:
    records = [made_alerts.rubin_record(version, seed) for seed in range(8)]
    assert_as_the_oracle(decoder, [made_alerts.confluent(record, version) for record in records])


@REAL
@pytest.mark.real
@pytest.mark.long
def test_all_real_alerts_in_one_batch(decoder) -> None:
    messages = made_alerts.real_alerts()
    assert len(messages) > 100
    assert_as_the_oracle(decoder, messages)


def test_a_field_that_the_schema_has_twice_is_read_as_fastavro_reads_it(decoder) -> None:
    """WINTER's schema has one. Both values are stored."""
    schema = made_alerts.ztf_schema()
    (candidate,) = (f["type"] for f in schema["fields"] if f["name"] == "candidate")
    again = [field for field in candidate["fields"] if field["name"] in ("jd", "rb")]
    candidate["fields"] += [field | {"type": "float"} for field in again]
    message = made_alerts.contained([made_alerts.ztf_record()], schema)
    assert_as_the_oracle(decoder, [message, made_alerts.ztf_alert(7)])
    (raw,) = (each.table for each in decoder.detections([message]).raw)
    stored = raw["candidate"].type
    assert [stored.field(name).type for name in ("jd_2", "jd")] == [pa.float64(), pa.float32()]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
@pytest.mark.parametrize("drb", [True, False])
@pytest.mark.parametrize("forced", [True, False])
def test_ztf_containers(decoder, codec: str, drb: bool, forced: bool) -> None:
    schema = made_alerts.ztf_schema(drb=drb, forced=forced)
    limit = made_alerts.ztf_record()["candidate"] | {
        **{"candid": None, "pid": 77, "magpsf": None, "sigmapsf": None, "isdiffpos": None},
        **{"ra": None, "dec": None, "rb": None, "diffmaglim": 19.5},
    }
    faint = made_alerts.ztf_record()["candidate"] | {"candid": 5, "isdiffpos": "f", "pid": 78}
    point = {
        **{"jd": 2459000.5, "fid": 2, "pid": 79, "rcid": 3},
        **{"forcediffimflux": 4.5, "forcediffimfluxunc": -99999.0, "magzpsci": 26.3},
    }
    record = made_alerts.ztf_record(prv_candidates=[limit, faint], fp_hists=[point])
    alone = made_alerts.ztf_record(candid=9, prv_candidates=[], fp_hists=None, cutoutTemplate=None)
    messages = [made_alerts.contained([r], schema, codec) for r in (record, alone)]
    assert_as_the_oracle(decoder, messages)


def test_rubin_oddities(decoder) -> None:
    """Solar-system alerts, NaN, null histories, null cutouts, and a long history."""
    solar = made_alerts.rubin_record(1000, 1)
    solar["diaSource"] |= {"diaObjectId": None, "ssObjectId": 24}
    orphan = made_alerts.rubin_record(1000, 2)
    orphan["diaSource"] |= {"diaObjectId": None, "ssObjectId": 0}
    nans = made_alerts.rubin_record(1000, 3)
    nans["diaSource"] |= dict.fromkeys(
        ("psfFlux", "ra", "timeProcessedMjdTai", "timeWithdrawnMjdTai", "reliability"), math.nan
    )
    bare = made_alerts.rubin_record(1000, 4) | dict.fromkeys(
        ("prvDiaSources", "prvDiaForcedSources", "cutoutScience", "cutoutTemplate")
    )
    long = made_alerts.rubin_record(1000, 5)
    long["prvDiaSources"] = [
        made_alerts.rubin_record(1000, 100 + i)["diaSource"] for i in range(1037)
    ]
    withdrawn = made_alerts.rubin_record(1000, 6)
    withdrawn["diaSource"]["timeWithdrawnMjdTai"] = 60001.0
    records = [solar, orphan, nans, bare, long, withdrawn]
    messages = [made_alerts.confluent(record, 1000) for record in records]
    assert_as_the_oracle(decoder, messages)

    points = decoder.detections(messages).rows.to_pylist()
    detections = {row["source_id"]: row for row in points if not row["forced"]}
    assert detections[solar["diaSource"]["diaSourceId"]]["object_id"] == "24"
    orphan_id = orphan["diaSource"]["diaSourceId"]
    assert detections[orphan_id]["object_id"] == str(orphan_id)
    assert detections[withdrawn["diaSource"]["diaSourceId"]]["withdrawn"]
    assert detections[nans["diaSource"]["diaSourceId"]]["flux"] is None


def test_gzip_is_the_same_every_time(decoder) -> None:
    messages = [made_alerts.confluent(made_alerts.rubin_record(1101, 7), 1101)]
    assert decoder.cutouts(messages).rows.equals(decoder.cutouts(messages).rows)


GOOD = made_alerts.confluent(made_alerts.rubin_record(1101, 1), 1101)
ZTF = made_alerts.ztf_alert()


def no_time() -> bytes:
    record = made_alerts.rubin_record(1101, 3)
    record["diaSource"]["midpointMjdTai"] = math.nan
    return made_alerts.confluent(record, 1101)


def future() -> bytes:
    record = made_alerts.rubin_record(1101, 3)
    record["diaSource"]["midpointMjdTai"] = 99999.0
    return made_alerts.confluent(record, 1101)


def not_fits() -> bytes:
    record = made_alerts.rubin_record(1101, 3) | {"cutoutScience": b"GIF89a"}
    return made_alerts.confluent(record, 1101)


def other_record() -> bytes:
    return made_alerts.contained([{"a": 1}], made_alerts.row_type("alert", {"a": "int"}))


def two_records() -> bytes:
    records = [made_alerts.ztf_record(), made_alerts.ztf_record(2)]
    return made_alerts.contained(records, made_alerts.ztf_schema())


BAD = {
    "empty": (b"", 400, "empty"),
    "one byte": (b"\0", 400, "without a record"),
    "frame alone": (GOOD[:5], 400, "without a record"),
    "wrong magic": (b"{}", 400, "begins with 0x7b7d"),
    "unknown schema id": (b"\0\0\0\x30\x39" + GOOD[5:], 400, "unknown schema id 12345"),
    "zeros": (bytes(1000), 400, "unknown schema id 0"),
    "cut-off container": (made_alerts.ztf_alert()[:-200], 400, "cut off"),
    "half a header": (made_alerts.ztf_alert()[:30], 400, "cut off"),
    "wrong sync": (ZTF[:-1] + bytes([ZTF[-1] ^ 1]), 400, "sync marker"),
    "damaged deflate": (made_alerts.ztf_alert(7, "deflate")[:-300] + bytes(300), 400, ""),
    "two records": (
        two_records(),
        422,
        "2 records",
    ),
    "no alert": (other_record(), 422, "neither LSST's"),
    "no object id": (made_alerts.ztf_alert(objectId=""), 422, "no object id"),
    "nan id": (
        made_alerts.contained(
            [made_alerts.ztf_record(math.nan)], made_alerts.ztf_schema(candid="double")
        ),
        422,
        "no id",
    ),
    "no time": (no_time(), 422, "no observation time"),
    "future": (future(), 422, "in the future"),
    "too large": (b"\0" + bytes(17 << 20), 413, "the limit is"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_message_among_good(decoder, name: str) -> None:
    """The fault names the reason; the other messages are decoded."""
    message, status, reason = BAD[name]
    for decode in (decoder.cutouts, decoder.detections):
        decoded = decode([GOOD, message, made_alerts.ztf_alert()])
        fault = decoded.faults[1]
        assert fault is not None
        assert (fault.status, reason in fault.message) == (status, True), fault.message
        assert decoded.faults[0] is decoded.faults[2] is None
        assert {row["survey"] for row in decoded.rows.to_pylist()} == {"lsst", "ztf"}


def bad_history() -> bytes:
    """An alert whose own time is good, and one of its history's is not."""
    record = made_alerts.rubin_record(1101, 4)
    past = made_alerts.rubin_record(1101, 5)["diaSource"] | {"midpointMjdTai": 99999.0}
    return made_alerts.confluent(record | {"prvDiaSources": [past]}, 1101)


@pytest.mark.parametrize("isolation", Isolation)
def test_an_alert_that_is_read_once_has_faults_by_table(decoder, isolation: Isolation) -> None:
    """An image that is no FITS is the fault of cutouts alone, a bad history of detections alone."""
    bad = [BAD[name][0] for name in ("empty", "unknown schema id", "no alert", "no object id")]
    messages = [GOOD, not_fits(), bad_history(), made_alerts.ztf_alert(), *bad]
    images, points = assert_once_as_twice(decoder, messages, isolation)
    assert [n for n, fault in enumerate(images.faults) if fault] == [1, *range(4, 8)]
    assert [n for n, fault in enumerate(points.faults) if fault] == [2, *range(4, 8)]


def test_cutout_that_is_not_fits(decoder) -> None:
    decoded = decoder.cutouts([GOOD, not_fits()])
    assert decoded.faults[0] is None
    assert "science cutout of alert" in decoded.faults[1].message
    assert "is not FITS" in decoded.faults[1].message
    assert decoded.rows.num_rows == 3
    stamp = {"fileName": "x", "stampData": gzip.compress(b"GIF89a")}
    decoded = decoder.cutouts([made_alerts.ztf_alert(cutoutDifference=stamp)])
    assert "difference cutout" in decoded.faults[0].message


def test_raw_alerts_keep_the_surveys_own_columns(decoder) -> None:
    """All of a record but cutouts and history, ordered by id, a table per schema."""
    records = [made_alerts.rubin_record(1101, seed) for seed in range(9)]
    messages = [made_alerts.confluent(record, 1101) for record in records]
    decoded = decoder.detections([*messages, made_alerts.ztf_alert(5), b"bad"])
    rubin, ztf = decoded.raw
    assert (rubin.survey, ztf.survey) == ("lsst", "ztf")
    left_out = {"prvDiaSources", "prvDiaForcedSources"}
    left_out |= {f"cutout{kind.title()}" for kind in ("science", "template", "difference")}
    assert set(rubin.table.column_names) == set(records[0]) - left_out
    expected = sorted(records, key=lambda record: record["diaSource"]["diaSourceId"])
    for row, record in zip(rubin.table.to_pylist(), expected, strict=True):
        for name in ("diaSource", "diaObject", "ssSource", "observation_reason"):
            assert row[name] == record[name]
    assert ztf.table["candidate"][0].as_py()["candid"] == 5


@pytest.mark.parametrize(
    "isolation", [Isolation.CHECKED, pytest.param(Isolation.ALONE, marks=pytest.mark.long)]
)
def test_once_all_is_read_no_message_is_suspected(decoder, isolation: Isolation) -> None:
    """What goes wrong behind the decoder is not the fault of the messages that it read last."""
    messages = [made_alerts.confluent(made_alerts.rubin_record(v, 1), v) for v in RUBIN_VERSIONS]
    for decode in (decoder.cutouts, decoder.detections):
        suspected: list[list[int]] = []
        decode(messages, isolation, lambda numbers, notes=suspected: notes.append(list(numbers)))
        assert {number for numbers in suspected for number in numbers} == set(range(len(messages)))
        assert suspected[-1] == []


PLACES = {"another": "", "its own": "candidate", "a history": "fp_hists", "image": "cutoutScience"}


@pytest.mark.parametrize("then", PLACES)
@pytest.mark.parametrize("first", [*PLACES, "one left out"])
def test_a_type_is_defined_in_one_field_and_used_in_another(decoder, first: str, then: str) -> None:
    """DataFusion forgets the types of a field that it is not asked for."""
    schema, record = made_alerts.ztf_schema(), made_alerts.ztf_record(1)
    definition = {"type": "enum", "name": "chosen", "symbols": ["A", "B"]}
    for number, (place, kind) in enumerate([(first, definition), (then, "chosen")]):
        new = {"name": f"more{number}", "type": kind}
        if not PLACES.get(place):
            new["type"] = kind if place == "another" else [kind, "int", "string"]
            schema["fields"].insert(number, new)
            record[new["name"]] = "B"
            continue
        [field] = (one for one in schema["fields"] if one["name"] == PLACES[place])
        schema["fields"].remove(field)
        schema["fields"].insert(number, field)
        kind = field["type"]
        while "fields" not in kind:
            kind = kind[1] if isinstance(kind, list) else kind["items"]
        kind["fields"].append(new)
        if record[field["name"]]:
            record[field["name"]][new["name"]] = "B"
    message = made_alerts.contained([record], schema)
    for decode in (decoder.cutouts, decoder.detections):
        assert decode([message, message]).faults == [None, None]
    assert decoder.identities([message, message])[1] == [None, None]
