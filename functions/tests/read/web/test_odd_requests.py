"""Requests that are wrong, and stored values that are odd: a 4xx that says why, never a 5xx."""

import json
import re
from http.client import HTTPConnection
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stampede.alerts.columns import KINDS
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.read.openapi import describe
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.support.alerts.fits_files import source, ztf
from tests.support.read.read_service import (
    LSST_ALERT,
    LSST_OBJECT,
    NAN,
    ZTF_ALERT,
    ZTF_OBJECT,
    cutout,
    fill,
    point,
    serving,
)

CUTOUT = f"/v1/alerts/{ZTF_ALERT}/cutouts/science"
CURVE = f"/v1/objects/{ZTF_OBJECT}/lightcurve"


def ask(read, path, method="GET", body=None, headers=()):
    """Send a request as it is: no client may tidy it."""
    address = urlsplit(read.url)
    connection = HTTPConnection(address.hostname, address.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        got = connection.getresponse()
        return got, got.read()
    finally:
        connection.close()


def test_names_of_rubin_are_ids(read):
    """`LSST-AP-DS-` before the id of a detection, `LSST-AP-DO-` before that of an object."""
    alert, curve = f"/v1/alerts/{LSST_ALERT}", f"/v1/objects/{LSST_OBJECT}/lightcurve"
    for prefix in ("LSST-AP-DS-", "lsst-ap-ds-"):
        assert read(alert.replace("alerts/", f"alerts/{prefix}")).data == read(alert).data
    named = curve.replace("objects/", "objects/LSST-AP-DO-")
    assert read(named).data == read(curve).data
    ids = [f"LSST-AP-DO-{LSST_OBJECT}", LSST_OBJECT]
    many = [
        read("/v1/lightcurves?format=csv", "POST", json.dumps({"ids": some}).encode()).data
        for some in (ids, ids[1:])
    ]
    assert many[0] == many[1]
    assert read(alert.replace("alerts/", "alerts/LSST-AP-DO-")).status == 400
    assert read(curve.replace("objects/", "objects/LSST-AP-DS-")).status == 404


WRONG = {
    "leading zeros": ("/v1/alerts/001012000000000000004567", "1012000000000000004567"),
    "leading zeros of a stored id": (f"/v1/alerts/00{ZTF_ALERT}", f"zeros: {ZTF_ALERT}"),
    "more digits than an id has": (f"/v1/alerts/{ZTF_ALERT}000", "64-bit"),
    "10,000 digits": (f"/v1/alerts/{'9' * 10_000}", "64-bit"),
    "other digits": (f"/v1/alerts/{quote('１２３')}", "64-bit"),
    "a surrogate": ("/v1/objects/%ED%A0%80/lightcurve", "object id"),
    "NUL": ("/v1/objects/a%00b/lightcurve", "object id"),
    "a control character": ("/objects/a%0d%0aX:b", "object id"),
    "dots": ("/objects/..", "object id"),
    "an unknown parameter": (f"{CURVE}?bands=g", "unknown parameter 'bands'. Known: format"),
    "a known one elsewhere": (f"/v1/alerts/{ZTF_ALERT}?size=3", "Known: survey"),
    "none known": ("/docs?table=cutouts", "none here"),
    "a control character as a name": ("/v1/ledger?%00=1", "unknown parameter"),
    "a parameter twice": (f"{CUTOUT}?format=png&format=fits", "more than once"),
    "not a plain number": (f"{CUTOUT}?format=png&size=1_0", "number"),
    "infinite": (f"{CURVE}?start=inf", "number"),
    "Arabic digits": (f"{CURVE}?start={quote('٣')}", "number"),
}


@pytest.mark.parametrize(("path", "detail"), WRONG.values(), ids=WRONG)
def test_a_wrong_request_is_told_what_is_wrong(read, path, detail):
    got, body = ask(read, path)
    assert got.status == 400, body
    assert got.headers["content-type"] == "application/problem+json"
    assert detail in json.loads(body)["detail"]


WRONG_BODIES = {
    "an unknown field": (b'{"ids": ["5"], "format": "tar"}', "'format'"),
    "a surrogate": (b'{"ids": ["\\ud800"]}', "not an alert id"),
    "a surrogate as a field": (b'{"\\ud800": 1, "ids": ["5"]}', "unknown field"),
    "NUL": (b'{"ids": ["\\u0000"]}', "not an alert id"),
    "leading zeros": (b'{"ids": ["005"]}', "leading zeros"),
    "null": (b'{"ids": [null]}', "not an alert id"),
    "an integer of 10,000 digits": (b'{"ids": [' + b"9" * 10_000 + b"]}", "JSON like"),
    "infinite": (b'{"ids": [Infinity, 1e999]}', "not an alert id"),
    "deep": (b'{"ids": ' + b"[" * 100_000, "nested"),
    "empty objects": (b'{"ids": [' + b"{}," * 100_000 + b"1]}", "nested"),
    "UTF-16": ('{"ids": ["5"]}'.encode("utf-16"), "not an alert id"),
    "a field twice": (b'{"ids": ["5"], "ids": ["6"]}', "twice"),
    "odd bytes": (b'{"ids": ["\xff"]}', "ASCII"),
}


@pytest.mark.parametrize(("body", "detail"), WRONG_BODIES.values(), ids=WRONG_BODIES)
def test_a_wrong_body_is_told_what_is_wrong(read, body, detail):
    got, response = ask(read, "/v1/cutouts", "POST", body)
    assert got.status == 400, response
    assert detail in json.loads(response)["detail"]


def test_an_id_of_ztf_may_be_in_small_letters(read):
    curve = f"/v1/objects/{ZTF_OBJECT}/lightcurve"
    for written in (ZTF_OBJECT.lower(), ZTF_OBJECT.upper()):
        assert read(curve.replace(ZTF_OBJECT, written)).data == read(curve).data
        assert read(f"/objects/{written}").status == 200
        many = read("/v1/lightcurves?format=csv", "POST", json.dumps({"ids": [written]}).encode())
        assert ZTF_OBJECT in many.data.decode()
    assert read("/v1/objects/ztf21abiuvd/lightcurve").status == 404  # one letter less


def test_only_text_and_integers_are_object_ids(read):
    for value in ("null", "true", "1.5", "NaN"):
        got, _ = ask(read, "/v1/lightcurves", "POST", b'{"ids": [%s]}' % value.encode())
        assert got.status == 400, value


RANGES = {
    "5,000 digits": ("bytes=0-" + "9" * 5000, 400),
    "from 5,000 digits": ("bytes=" + "9" * 5000 + "-", 400),
    "beyond the end": ("bytes=999999999999999999-", 416),
    "to beyond the end": ("bytes=0-999999999999999999", 206),
    "another unit": ("lines=0-5", 200),
    "several": ("bytes=0-5,7-9", 200),
    "backwards": ("bytes=5-1", 200),
    "nothing": ("bytes=-", 200),
    "negative": ("bytes=--5", 200),
    "superscript": ("bytes=0-\xb2", 200),
}


@pytest.mark.parametrize(("text", "status"), RANGES.values(), ids=RANGES)
def test_odd_ranges(read, text, status):
    got, _ = ask(read, CUTOUT, headers=[("Range", text.encode("latin-1"))])
    assert got.status == status


def test_magnitudes_of_many_light_curves(read):
    for name in ("arrow", "parquet", "csv"):
        got = read(f"/v1/lightcurves?magnitudes=true&format={name}", "POST", b"ZTF21abiuvdk x")
        assert got.status == 200
        assert b"mag_err" in got.data
    table = pa.ipc.open_stream(
        read("/v1/lightcurves?magnitudes=true", "POST", ZTF_OBJECT.encode()).data
    ).read_all()
    one = read(f"{CURVE}?magnitudes=true").json()["detections"]
    assert table["mag"].to_pylist() == [row["mag"] and pytest.approx(row["mag"]) for row in one]
    rows = read("/v1/lightcurves?magnitudes=1&format=csv", "POST", b"ZTF21abiuvdk x").data.decode()
    assert len({line.count(",") for line in rows.splitlines()}) == 1


def test_no_redirect_to_the_host_that_a_request_names(read):
    for path in (f"/find?id={ZTF_OBJECT}", "/v1/ledger/", "//evil.test/"):
        got, _ = ask(read, path, headers=[("Host", "evil.test")])
        assert "evil" not in got.headers.get("location", "")
        assert got.status in (302, 308, 404)
        assert re.match("/[a-z0-9]", got.headers.get("location", "/objects/"))


def test_an_odd_host_is_no_error_of_the_service(read):
    for host in ("[", "a b", "", "\xff", "evil.test:port"):
        got, _ = ask(read, "/nothing", headers=[("Host", host.encode("latin-1"))])
        assert 400 <= got.status < 500, host


ODD_TIMES = [-1e300, -1e9, -678576.0, -678575.0, 0.0, 2973483.0, 2973484.0, 1e9, 1e300]
NOT_TIMES = [NAN, float("inf"), -float("inf")]


@pytest.fixture(scope="module")
def odd():
    """Alerts at times that no calendar has, of objects with odd names and odd values."""
    objects = MemoryObjects()
    for number, mjd in enumerate([*ODD_TIMES, *NOT_TIMES], 1):
        name = f"T{number}"
        rows = [
            cutout(number, "ztf", kind, name, 59000.0 if mjd in NOT_TIMES or mjd != mjd else mjd,
                   ztf(source(size=8)))
            for kind in KINDS
        ]  # fmt: skip
        points = [
            point(name, "ztf", number, mjd),
            point(name, "ztf", number + 1000, 59000.0, flux=3e38, flux_err=3e38, ra=NAN, dec=1e300),
            point(name, "ztf", number + 2000, mjd, flux=float("inf"), flux_err=-1.0, band="<b>"),
        ]
        fill(objects, rows, points, Coverage.of({("odd", 0): [number]}))
    for number, name in enumerate(ODD_NAMES, 100):
        rows = [cutout(number, "ztf", kind, name, 59000.0, ztf(source(size=8))) for kind in KINDS]
        fill(objects, rows, [point(name, "ztf", number, 59000.0)], Coverage.of({}))
    yield from serving(make_app(Settings(), objects))


ODD_NAMES = ["a/b", "a b?c#d", "//evil.test", "<script>", "=1+1", "é\u202e", "x" * 200]


@pytest.mark.parametrize("number", range(1, len(ODD_TIMES) + len(NOT_TIMES) + 1))
def test_a_time_that_no_calendar_has_is_shown(odd, number):
    for query in ("", "?axis=mag", f"?alert={number}"):
        assert ask(odd, f"/objects/T{number}{query}")[0].status == 200
    for name in ("json", "csv", "parquet", "arrow", "votable"):
        path = f"/v1/objects/T{number}/lightcurve?magnitudes=true&format={name}"
        assert ask(odd, path)[0].status == 200
    got, body = ask(odd, f"/v1/alerts/{number}")
    assert got.status == 200
    json.loads(body, parse_constant=pytest.fail)
    for name in ("tar", "arrow"):
        assert ask(odd, f"/v1/cutouts?format={name}", "POST", str(number).encode())[0].status == 200


@pytest.mark.parametrize("number", range(100, 100 + len(ODD_NAMES)))
def test_an_odd_name_is_escaped_in_every_link(odd, number):
    got, body = ask(odd, f"/v1/alerts/{number}")
    assert got.status == 200
    name = ODD_NAMES[number - 100]
    page = json.loads(body)["page"]
    assert page == f"/objects/{quote(name, safe='')}?alert={number}"
    got, body = ask(odd, f"/alerts/{number}")
    assert got.status == 200
    assert f'href="{page}#'.encode() in body
    assert ask(odd, page)[0].status in (200, 400, 404)


def operations():
    for path, item in describe()["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), operation


KNOWN = {
    "alert_id": [str(ZTF_ALERT), "77", "666", "1"],
    "object_id": [ZTF_OBJECT, LSST_OBJECT, "nothing"],
    "kind": [*KINDS],
}
NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["9" * 400, "00", "1e400", "0x1", "1_0", "-0", "nan"]),
)
TEXT = st.one_of(st.text(max_size=80), NUMBERS, st.binary(max_size=20))


def value_of(parameter) -> st.SearchStrategy:
    schema = parameter["schema"]
    good = schema.get("enum") or KNOWN.get(parameter["name"]) or ["true", "5", "g,r"]
    return st.one_of(st.sampled_from(good), TEXT)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("ids"), inner),
    max_leaves=8,
)
BODIES = st.one_of(
    JSON.map(json.dumps).map(str.encode),
    st.builds(lambda ids: json.dumps({"ids": ids}).encode(), JSON),
    st.lists(TEXT.map(lambda t: t if isinstance(t, bytes) else t.encode(errors="replace"))).map(
        b"\n".join
    ),
    st.binary(max_size=200),
)
HEADER_TEXT = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "Accept",
                "Accept-Encoding",
                "Range",
                "If-None-Match",
                "If-Range",
                "If-Modified-Since",
                "Host",
                "Origin",
                "Authorization",
                "X-Forwarded-For",
                "X-Forwarded-Proto",
                "Content-Type",
                "Content-Encoding",
                "Access-Control-Request-Method",
                "Cookie",
            ]
        ),
        st.one_of(
            HEADER_TEXT,
            st.builds("bytes={}-{}".format, NUMBERS, NUMBERS),
            st.sampled_from(["*/*;q=", "text/html", "image/*", "bytes=-1", "*", 'W/"', "gzip;q=x"]),
        ),
    ),
    max_size=3,
    unique_by=lambda header: header[0],
)


@st.composite
def requests(draw):
    path, method, operation = draw(st.sampled_from([*operations()]))
    query = []
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            value = draw(value_of(parameter))
            if isinstance(value, str):
                value = value.encode("utf-8", "surrogatepass")
            path = path.replace(f"{{{parameter['name']}}}", quote(value, safe=""))
        elif draw(st.integers(0, 3)) == 0:
            value = draw(value_of(parameter))
            query.append((parameter["name"], value))
    if draw(st.integers(0, 9)) == 0:
        query.append((draw(st.text(max_size=5)), draw(TEXT)))
    if query:
        path += "?" + urlencode(query, errors="surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        method = draw(st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"]))
    body = draw(BODIES) if method in ("POST", "PUT") else None
    return path, method, body, draw(HEADERS)


@settings(
    max_examples=6 * settings.default.max_examples,
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
@given(requests())
def test_no_request_is_an_error_of_the_service(read, request_):
    path, method, body, headers = request_
    got, response = ask(read, path, method, body, [(k, v.encode("latin-1")) for k, v in headers])
    assert got.status < 500, response
    if got.status >= 400 and method != "HEAD" and got.headers["content-type"].endswith("json"):
        assert json.loads(response)["status"] == got.status
