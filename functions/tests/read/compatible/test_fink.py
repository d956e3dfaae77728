"""Fink's routes; client/tests/test_brokers.py asks them as Fink's users do."""

import json
from urllib.parse import urlencode

import pytest

from tests.support.read.read_service import BODY, LSST_OBJECT, ZTF_ALERT, ZTF_OBJECT, Reader

API = "/compatible/fink"
SCIENCE = {"objectId": ZTF_OBJECT, "kind": "Science"}


def ask(read: Reader, end: str, **asked: object):
    return read(f"{API}/{end.replace('/', '/api/v1/')}", "POST", json.dumps(asked).encode())


def test_a_question_may_be_a_query_a_form_or_json(compatible: Reader) -> None:
    path, asked = f"{API}/ztf/api/v1/objects", {"objectId": ZTF_OBJECT, "columns": "i:candid"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answers = [
        compatible(f"{path}?{urlencode(asked)}"),
        compatible(path, "POST", urlencode(asked).encode(), headers=form),
        ask(compatible, "ztf/objects", **asked),
    ]
    assert [got.json() for got in answers] == 3 * [[{"i:candid": ZTF_ALERT}, {"i:candid": 3}]]


@pytest.mark.parametrize(
    ("end", "asked", "status", "word"),
    [
        ("ztf/objects", {}, 400, "objectId is missing"),
        ("ztf/objects", {"objectId": "no id"}, 404, "noid"),
        ("ztf/objects", {"objectId": f"{ZTF_OBJECT},ZTF18aaaaaaa"}, 404, "ZTF18aaaaaaa"),
        ("ztf/objects", {"objectId": LSST_OBJECT}, 404, "of ztf"),
        ("ztf/objects", {"objectId": [ZTF_OBJECT]}, 400, "text or a number"),
        ("ztf/objects", {"objectId": ",".join(f"Z{n}" for n in range(101))}, 400, "100"),
        ("ztf/objects", {"objectId": "Z" * 70_000}, 413, "bytes"),
        ("ztf/objects", {"objectId": ZTF_OBJECT, "withcutouts": True}, 501, "cutouts"),
        ("ztf/objects", {"objectId": ZTF_OBJECT, "withupperlim": "maybe"}, 400, "true or false"),
        ("ztf/objects", {"objectId": ZTF_OBJECT, "output-format": "xml"}, 400, "votable"),
        ("ztf/objects", {"objectId": ZTF_OBJECT, "columns": "d:rf_snia_vs_nonia"}, 501, "d:rf"),
        ("ztf/sources", {"diaObjectId": LSST_OBJECT}, 404, "not found"),
        ("atlas/objects", {"objectId": "1"}, 404, "ztf, lsst"),
        ("lsst/objects", {"objectId": LSST_OBJECT}, 400, "diaObjectId"),
        ("lsst/conesearch", {"ra": 10, "dec": -5}, 400, "radius is missing"),
        ("lsst/conesearch", {"ra": 10, "dec": -95, "radius": 1}, 400, "declination"),
        ("lsst/conesearch", {"ra": 10, "dec": -5, "radius": 1, "n": 1001}, 400, "1000"),
        ("lsst/conesearch", {"ra": 1, "dec": 1, "radius": 1, "startdate": "now"}, 400, "such as"),
        ("lsst/conesearch", {"ra": 1, "dec": 1, "radius": 1, "startdate": "nan"}, 400, "such as"),
        ("lsst/conesearch", {"ra": 1, "dec": 1, "radius": 1, "window": 1}, 400, "startdate"),
        ("lsst/conesearch", {"ra": 1, "dec": 1, "radius": 1, "kind": "during"}, 400, "within"),
        ("ztf/cutouts", {"objectId": ZTF_OBJECT}, 400, "kind is missing"),
        ("ztf/cutouts", {"objectId": ZTF_OBJECT, "kind": "All"}, 400, "Science"),
        ("ztf/cutouts", SCIENCE | {"stretch": "power"}, 501, "power"),
        ("ztf/cutouts", SCIENCE | {"objectId": "ZTF00both"}, 404, "ZTF00both"),
        ("ztf/cutouts", SCIENCE | {"objectId": "Z1", "candid": ZTF_ALERT}, 404, ZTF_OBJECT),
        ("ztf/sso", {}, 400, "n_or_d is missing"),
        ("ztf/sso", {"n_or_d": "8467,,"}, 400, "must be such as 8467"),
        ("ztf/sso", {"n_or_d": 8467}, 404, "no alert of the body '8467' is stored"),
        ("ztf/sso", {"n_or_d": f"{BODY},8467"}, 404, "8467"),
        ("atlas/sso", {"n_or_d": BODY}, 404, "ztf, lsst"),
        ("ztf/sso", {"n_or_d": BODY, "withEphem": True}, 501, "/v1/moving/DESIGNATION"),
        ("ztf/sso", {"n_or_d": BODY, "withResiduals": "True"}, 501, "ask Fink"),
        ("ztf/sso", {"n_or_d": BODY, "withCutouts": True}, 501, "cutouts"),
        ("ztf/sso", {"n_or_d": BODY, "columns": "sso_name"}, 501, "sso_name"),
        ("ztf/ssoft", {}, 501, "ask Fink"),
        ("lsst/blocks", {}, 501, "ask Fink"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_an_error(
    compatible: Reader, end: str, asked: dict, status: int, word: str
) -> None:
    got = ask(compatible, end, **asked)
    assert (got.status, got.headers["content-type"]) == (status, "application/problem+json")
    assert word in got.json()["detail"]


@pytest.mark.parametrize(
    "body", [b'{"\\ud800": 1}', b'{"\\ud800": [1]}', b'{"objectId": "\\ud800"}']
)
def test_lone_surrogates_are_no_fault_of_the_server(compatible: Reader, body: bytes) -> None:
    assert compatible(f"{API}/ztf/api/v1/objects", "POST", body).status == 400


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff", b"[" * 60_000])
def test_a_body_that_is_neither_json_nor_a_form(compatible: Reader, body: bytes) -> None:
    got = compatible(f"{API}/ztf/api/v1/objects", "POST", body)
    assert (got.status, got.json()["parameter"]) == (400, "body")


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"startdate": "2021-07-03"}, 1),
        ({"startdate": "2021-07-04 12:00:00"}, 0),
        ({"startdate": 59398.9, "window": 0.2}, 1),
        ({"startdate": 2459398.5, "stopdate": 2459399.0}, 0),
        ({"stopdate": "59398.9"}, 0),
        ({"n": 1}, 1),
    ],
)
def test_a_cone_takes_objects_first_seen_within_a_time(
    compatible: Reader, asked: dict, count: int
) -> None:
    got = ask(compatible, "ztf/conesearch", ra=10, dec=-5, radius=5, **asked)
    assert (got.status, len(got.json())) == (200, count)


@pytest.mark.parametrize("name", ["2011UW158", BODY, "K11UF8W"])
def test_bodies_of_the_solar_system(compatible: Reader, name: str) -> None:
    (row,) = ask(compatible, "ztf/sso", n_or_d=name, withEphem=False).json()
    assert (row["i:ssnamenr"], row["i:candid"], row["i:fid"]) == ("2011UW158", ZTF_ALERT, 1)
    assert row["i:jd"] == pytest.approx(2459401.5 - 37 / 86400, abs=1e-7)
    assert row["i:magpsf"] == pytest.approx(21.514394, abs=1e-5)
    rows = ask(compatible, "lsst/sso", n_or_d=name).json()
    assert [each["r:diaSourceId"] for each in rows] == [11, 12]
    assert (rows[0]["f:sso_name"], rows[0]["r:psfFlux"], rows[0]["r:band"]) == (BODY, 9000.0, "r")
    asked = {"n_or_d": name, "columns": "i:jd,i:magpsf", "output-format": "csv"}
    csv = compatible(f"{API}/ztf/api/v1/sso?{urlencode(asked)}").data.decode()
    head, line = csv.splitlines()
    assert (head, len(line.split(","))) == ("i:jd,i:magpsf", 2)
    for format in ("parquet", "votable"):
        asked["output-format"] = format
        assert compatible(f"{API}/ztf/api/v1/sso?{urlencode(asked)}").status == 200


def test_percentiles_change_a_linear_picture_alone(compatible: Reader) -> None:
    def drawn(**more: object) -> bytes:
        asked = {"objectId": ZTF_OBJECT, "candid": str(ZTF_ALERT), "kind": "Science", **more}
        return ask(compatible, "ztf/cutouts", **asked).data

    assert drawn() == drawn(pmin=10, pmax=20)
    assert drawn(stretch="linear") != drawn(stretch="linear", pmin=10, pmax=20)
    assert b"must be less" in drawn(stretch="log", pmin=20, pmax=10)
