"""A message is a Rubin or a ZTF alert, or it is refused by name."""

import io

import fastavro
import pytest

from tests.support.alerts import made_alerts
from tests.support.alerts.oracle_comparison import assert_as_the_oracle

FOREIGN = made_alerts.REAL / "foreign"


def renamed(name: str, **changes) -> dict:
    schema = {key: value for key, value in made_alerts.ztf_schema().items() if key != "namespace"}
    stamps = [
        field | {"type": ["null", "cutout"]}
        if field["name"] in ("cutoutTemplate", "cutoutDifference")
        else field
        for field in schema["fields"]
    ]
    return {**schema, "fields": stamps, "name": name, **changes}


def without(schema: dict, *names: str) -> dict:
    return schema | {"fields": [f for f in schema["fields"] if f["name"] not in names]}


def with_candidate(schema: dict, change) -> dict:
    fields = [
        field | {"type": change(field["type"])} if field["name"] == "candidate" else field
        for field in schema["fields"]
    ]
    return schema | {"fields": fields}


REFUSED = {
    "pgir.alert": (renamed("alert", namespace="pgir"), "a PGIR alert (schema pgir.alert)"),
    "turbo": (renamed("turbo.alert"), "a TURBO alert (schema turbo.alert)"),
    "elasticc": (renamed("alert", namespace="elasticc.v0_9"), "a ELASTICC alert"),
    "no candid": (
        without(
            with_candidate(
                renamed("topLevelRecord"), lambda candidate: without(candidate, "candid")
            ),
            "candid",
        ),
        "ZTF's (no field candid or candidate.candid)",
    ),
    "no objectId": (without(made_alerts.ztf_schema(), "objectId"), "ZTF's (no field objectId)"),
    "no pid": (
        with_candidate(renamed("alert"), lambda candidate: without(candidate, "pid")),
        "ZTF's (no field candidate.pid)",
    ),
    "no record": (
        with_candidate(renamed("alert"), lambda _: "long"),
        "ZTF's (no field candidate.jd)",
    ),
    "nothing": (made_alerts.row_type("alert", {"a": "int"}), "neither LSST's (no field diaSource)"),
    "odd name": (renamed("x\n\x00\u2603"), "schema x"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_foreign_alert_is_refused_by_name(decoder, name: str) -> None:
    schema, reason = REFUSED[name]
    record = made_alerts.ztf_record() | {"a": 1}
    if name == "no record":
        record["candidate"] = 5
    message = made_alerts.contained([record], schema)
    for decode in (decoder.cutouts, decoder.detections):
        decoded = decode([message, made_alerts.ztf_alert()])
        fault, good = decoded.faults
        assert good is None
        assert fault is not None
        assert (fault.status, fault.name) == (422, "unknown-survey")
        assert reason in fault.message
        assert "Stampede knows LSST, ZTF, WINTER and DESIRT" in fault.message


@pytest.mark.skipif(not FOREIGN.is_dir(), reason="the real alerts (../shared/data) are not here")
@pytest.mark.real
@pytest.mark.parametrize("survey", ["pgir"])
def test_a_real_foreign_alert_is_refused_by_name(decoder, survey: str) -> None:
    message = (FOREIGN / f"{survey}-1.avro").read_bytes()
    for decode in (decoder.cutouts, decoder.detections):
        (fault,) = decode([message]).faults
        assert fault is not None
        assert fault.status == 422
        expected = f"this is a {survey.upper()} alert (schema {survey}.alert), Stampede knows"
        assert fault.message.startswith(expected)


@pytest.mark.parametrize("name", ["topLevelRecord", "alert", "ztf.alert", "ZtfAlert", "ztf.v3_3"])
def test_an_alert_of_another_name_is_known_by_its_fields(decoder, name: str) -> None:
    assert_as_the_oracle(
        decoder, [made_alerts.contained([made_alerts.ztf_record()], renamed(name))]
    )


def test_an_exported_alert_may_have_a_candidate_that_is_a_union(decoder) -> None:
    schema = with_candidate(renamed("topLevelRecord"), lambda candidate: [candidate, "null"])
    assert_as_the_oracle(decoder, [made_alerts.contained([made_alerts.ztf_record()], schema)])
    message = made_alerts.contained([made_alerts.ztf_record(candidate=None)], schema)
    (fault,) = decoder.detections([message]).faults
    assert fault is not None
    assert (fault.status, "no observation time" in fault.message) == (422, True)


def union_schema() -> list[dict]:
    """As early ZTF alerts had it: a union of all types, the alert's last."""
    types = {field["name"]: field["type"] for field in renamed("alert")["fields"]}
    named = {"candidate": "ztf.candidate"} | {
        f"cutout{kind}": ["null", "ztf.cutout"] for kind in ("Science", "Template", "Difference")
    }
    fields = [{"name": name, "type": named.get(name, kind)} for name, kind in types.items()]
    return [
        types["cutoutScience"][1] | {"namespace": "ztf"},
        types["candidate"] | {"namespace": "ztf"},
        renamed("ztf.alert") | {"fields": fields},
    ]


def test_a_union_schema_holds_the_alert_in_one_branch(decoder) -> None:
    message = made_alerts.contained([made_alerts.ztf_record()], union_schema())
    assert isinstance(fastavro.reader(io.BytesIO(message)).writer_schema, list)
    decoded = decoder.cutouts([message, made_alerts.ztf_alert()])
    assert decoded.faults == [None, None]
    assert decoded.rows.num_rows == 6
    points = decoder.detections([message])
    assert points.faults == [None]
    assert points.rows.equals(decoder.detections([made_alerts.ztf_alert()]).rows)


def test_a_union_without_an_alert_is_called_a_union(decoder) -> None:
    message = made_alerts.contained([{"a": 1}], [made_alerts.row_type("b", {"a": "int"}), "null"])
    (fault,) = decoder.cutouts([message]).faults
    assert fault is not None
    assert (fault.status, "is a union" in fault.message) == (422, True)
    other = union_schema()
    stamp = {"fileName": "x", "stampData": b""}
    (fault,) = decoder.cutouts([made_alerts.contained([stamp], other)]).faults
    assert fault is not None
    assert (fault.status, "another branch" in fault.message) == (400, True)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_an_alert_of_ztf_may_have_its_candid_in_its_candidate_alone(decoder, codec: str) -> None:
    """Those of schemas 3.0 to 3.3 in some archives do."""
    record = made_alerts.ztf_record(7)
    del record["candid"]
    schema = without(made_alerts.ztf_schema(), "candid")
    message = made_alerts.contained([record], schema, codec)
    assert_as_the_oracle(decoder, [message, made_alerts.ztf_alert(8)])
    assert decoder.cutouts([message]).rows["alert_id"].to_pylist() == 3 * [7]


def test_an_alert_of_ztf_without_any_candid_is_refused(decoder) -> None:
    schema = without(made_alerts.ztf_schema(["null", "long"]), "candid")
    record = made_alerts.ztf_record(None)
    for decode in (decoder.cutouts, decoder.detections):
        (fault,) = decode([made_alerts.contained([record], schema)]).faults
        assert fault.status == 422
