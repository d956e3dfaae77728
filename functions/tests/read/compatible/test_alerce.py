"""ALeRCE's routes; client/tests/test_brokers.py asks them by ALeRCE's own client."""

import pytest

from tests.support.read.read_service import LSST_ALERT, LSST_OBJECT, ZTF_ALERT, ZTF_OBJECT, Reader

ZTF = "/compatible/alerce/ztf/v1/objects"
LIST = "/compatible/alerce/object_api/list_objects"
STAMP = "/compatible/alerce/get_stamp"
RUBIN_STAMP = "/compatible/alerce/stamps_api/stamp"
AROUND = "ra=10&dec=-5&radius=5"


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        (AROUND, [ZTF_OBJECT]),
        (f"oid={ZTF_OBJECT}&oid={ZTF_OBJECT}", [ZTF_OBJECT]),
        ("ra=10&dec=-4.99&radius=5", []),
        (f"{AROUND}&ndet=2&ndet=2", [ZTF_OBJECT]),
        (f"{AROUND}&ndet=3", []),
        (f"{AROUND}&firstmjd=59398.9&firstmjd=59399", [ZTF_OBJECT]),
        (f"{AROUND}&firstmjd=59399", []),
        (f"{AROUND}&order_by=ndet&order_mode=ASC&page_size=1", [ZTF_OBJECT]),
        (f"{AROUND}&page=2", []),
    ],
)
def test_objects_are_chosen(compatible: Reader, query: str, ids: list[str]) -> None:
    got = compatible(f"{ZTF}?{query}")
    assert got.status == 200
    assert [one["oid"] for one in got.json()["items"]] == ids


def test_a_page_says_where_the_others_are(compatible: Reader) -> None:
    page = compatible(f"{ZTF}?oid={ZTF_OBJECT}&page=2").json()
    assert (page["total"], page["has_next"], page["prev"]) == (1, False, 1)


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        (ZTF, 501, "around"),
        (f"{ZTF}?{AROUND}&classifier=lc_classifier", 501, "classification"),
        (f"{ZTF}?{AROUND}&probability=0.5", 501, "classification"),
        (f"{ZTF}?{AROUND}&order_by=g_r_max", 501, "g_r_max"),
        (f"{ZTF}?ra=10&dec=-5", 400, "radius is missing"),
        (f"{ZTF}?{AROUND}&n_det=1", 400, "n_det"),
        (f"{ZTF}?{AROUND}&ndet=x", 400, "ndet must be a number"),
        (f"{ZTF}?{AROUND}&ndet=nan", 400, "ndet must be a number"),
        (f"{ZTF}?{AROUND}&ndet=1&ndet=2&ndet=3", 400, "twice"),
        (f"{ZTF}?{AROUND}&page=0", 400, "number from 1"),
        (f"{ZTF}?{AROUND}&order_by=ndet&order_mode=UP", 400, "ASC"),
        (f"{ZTF}?{AROUND}&radii=5", 400, "unknown parameter"),
        (f"{ZTF}?oid={LSST_OBJECT}", 404, "of ztf"),
        (f"{ZTF}/ZTF18aaaaaaa", 404, "no detection"),
        (f"{ZTF}/{ZTF_OBJECT}/features/Multiband_period", 501, "features"),
        (f"{ZTF}/{ZTF_OBJECT}/nothing", 404, "not found"),
        (f"{LIST}?{AROUND}&survey=ztf", 400, "lsst"),
        (f"/compatible/alerce/object_api/object?oid={LSST_OBJECT}", 400, "survey_id is missing"),
        (f"{STAMP}?oid={ZTF_OBJECT}&candid={ZTF_ALERT}&type=sky", 400, "science"),
        (f"{STAMP}?oid={ZTF_OBJECT}&candid=x&type=science", 400, "alert id"),
        (f"{STAMP}?oid={ZTF_OBJECT}&candid=1&type=science", 404, "alert 1"),
        (f"/compatible/alerce/stamps_api/get_avro?measurement_id={LSST_ALERT}", 404, "without its"),
        (f"{STAMP}?oid=ZTF18a&candid={ZTF_ALERT}&type=science", 404, ZTF_OBJECT),
        (f"{STAMP}?oid=ZTF00bad&candid=666&type=science&format=png", 422, ""),
    ],
)
def test_what_cannot_be_answered_is_an_error(
    compatible: Reader, path: str, status: int, word: str
) -> None:
    got = compatible(path)
    assert (got.status, got.headers["content-type"]) == (status, "application/problem+json")
    assert word in got.json()["detail"]


def test_an_image_that_the_survey_did_not_send_is_an_error(compatible: Reader) -> None:
    query = f"oid={LSST_OBJECT}&measurement_id={LSST_ALERT}&survey_id=lsst&file_format=fits"
    assert compatible(f"{RUBIN_STAMP}?{query}&stamp_type=cutoutScience").data[:2] == b"\x1f\x8b"
    got = compatible(f"{RUBIN_STAMP}?{query}&stamp_type=cutoutTemplate")
    assert (got.status, got.json()["type"]) == (404, "urn:stampede:problem:no-such-cutout")


def test_the_addresses_are_those_that_the_client_reached(compatible: Reader) -> None:
    config = compatible("/compatible/alerce/config.json").json()
    assert config["ztf"]["ZTF_API_URL"] == f"{compatible.url}/compatible/alerce"
    assert set(config) == {"ztf", "multisurvey", "stamps", "stamps_ztf"}


def test_withdrawn_points_are_left_out(compatible: Reader) -> None:
    found = compatible(f"{ZTF}/{ZTF_OBJECT}/detections").json()
    assert [point["candid"] for point in found] == ["3", str(ZTF_ALERT)]
    assert [point["has_stamp"] for point in found] == [False, True]
    assert [point["isdiffpos"] for point in found] == [-1, 1]
    assert [point["drb"] for point in found] == [0.9, 0.9]
