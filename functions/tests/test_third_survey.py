"""A survey is one module and one entry: an invented one works from its bytes to HTTP.

This crosses all rooms: decoding, the alert functions, the store and the read service.
"""

import io
import json
import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import fastavro
import pytest
from starlette.applications import Starlette
from starlette.types import Message

from stampede.alerts import surveys
from stampede.alerts.framing import Framing, writer_schema
from stampede.alerts.surveys import ztf
from stampede.alerts.surveys.survey import Survey
from stampede.config.settings import Settings
from stampede.errors import Unusable
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves
from stampede.images.fits import unpack
from stampede.read.app import make_app
from stampede.read.web import static_files
from stampede.runtime.timescale import TAI_MINUS_UTC
from stampede.store.objects.memory import MemoryObjects
from tests.support.alerts import argus, made_alerts
from tests.support.alerts.batch_decoders import make_batch_decoder

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-survey.md"
FITS = made_alerts.FITS


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(surveys.MODULES, "argus", "tests.support.alerts.argus")
    static_files._files.cache_clear()
    yield
    static_files._files.cache_clear()


def alert(number: int, history: int = 3, **changes) -> bytes:
    rows = [
        {"id": 100 * number + n, "mjdUtc": 60000.0 + n, "filter": band, "uJy": 1.5, "uJyErr": 0.25}
        for n, band in zip(range(history + 1), cycle(["g", "V9"]))
    ]
    record = {
        **{"alertId": number, "star": f"star-{number}", "measurement": rows.pop()},
        **{"earlier": rows, "imageNew": FITS, "imageOld": None, "imageDiff": FITS, **changes},
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(argus.built_in_schemas()[7]), record)
    return b"\0" + (7).to_bytes(4, "big") + out.getvalue()


@pytest.mark.parametrize("name", ["lsst", "ztf", "argus"])
def test_each_survey_has_all_names_of_the_protocol(name: str) -> None:
    survey = surveys.surveys()[surveys.names().index(name)]
    assert isinstance(survey, Survey)
    assert name == survey.NAME
    assert all(re.fullmatch("[A-Za-z][A-Za-z0-9]*", band) for band in survey.BANDS)
    colours = [colour for band in survey.BANDS.values() for colour in band]
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
    assert all(page.format("x") != page for page in survey.OBJECT_PAGES.values())


def test_the_framing_recognises_its_schema() -> None:
    assert Framing(1 << 20).take(alert(1)).schema.survey is argus
    other = made_alerts.contained([{"a": 1}], made_alerts.row_type("x", {"a": "int"}))
    with pytest.raises(Unusable, match=r"neither LSST's .* nor ZTF's .* nor ARGUS's"):
        Framing(1 << 20).take(other)


def test_its_alerts_are_decoded_beside_those_of_other_surveys(tmp_path) -> None:
    decoder = make_batch_decoder(tmp_path)
    bad = alert(3, imageNew=b"GIF89a")
    messages = [alert(1), made_alerts.ztf_alert(5), bad, alert(2)]
    images, points = decoder.cutouts(messages), decoder.detections(messages)
    assert [fault and fault.message for fault in images.faults] == [
        *(None, None),
        "the science cutout of alert 3 is not FITS: it begins with 0x474946383961",
        None,
    ]
    found = {
        (row["alert_id"], row["kind"]): row["fits"] and unpack(row["fits"])
        for row in images.rows.to_pylist()
        if row["survey"] == "argus"
    }
    kinds = {"science": FITS, "template": None, "difference": FITS}
    assert found == {(n, kind): fits for n in (1, 2) for kind, fits in kinds.items()}

    assert points.faults == [None] * 4
    star = [row for row in points.rows.to_pylist() if row["object_id"] == "star-1"]
    assert [row["source_id"] for row in star] == [103, 100, 101, 102]
    assert star[0]["mjd"] == 60003 + TAI_MINUS_UTC
    assert (star[0]["flux"], star[0]["flux_err"]) == (1500.0, 250.0)
    raw = {alerts.survey: alerts.table for alerts in points.raw}
    assert raw["argus"].column_names == ["alertId", "star", "measurement"]


async def get(app: Starlette, path: str) -> tuple[int, bytes]:
    """Status and body of a GET, without a server."""
    path, _, query = path.partition("?")
    scope = {
        **{"type": "http", "method": "GET", "path": path, "query_string": query.encode()},
        **{"headers": [], "http_version": "1.1", "server": ("read", 80)},
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


@pytest.mark.anyio
async def test_the_functions_store_it_and_the_read_service_serves_it(tmp_path, monkeypatch) -> None:
    objects, messages = MemoryObjects(), [alert(1), alert(2)]
    positions = [Position("argus-alerts", 0, n) for n in range(2)]
    for function in (cutouts, lightcurves):
        monkeypatch.setattr(function, "open_objects", lambda settings: objects)
        flush = function.make_batch_storer(Settings(spool=tmp_path))
        assert flush(Batch(messages, positions)).outcomes == [None, None]
    assert [info.key for info in objects.list("alerts/argus/")]

    app = make_app(Settings(), objects)
    async with app.router.lifespan_context(app):
        response = await get(app, "/v1/alerts/1/cutouts/science?survey=argus")
        assert response == (200, FITS)
        status, body = await get(app, "/v1/objects/star-2/lightcurve?format=json")
        assert (status, json.loads(body)["survey"]) == (200, "argus")
        assert len(json.loads(body)["detections"]) == 4
        status, body = await get(app, "/v1/alerts/1?survey=zwicky")
        assert status == 400
        assert b"must be one of lsst, ztf, winter, desirt, argus" in body


@pytest.mark.anyio
async def test_pages_and_routes_know_its_bands(tmp_path, monkeypatch) -> None:
    objects = MemoryObjects()
    for function in (cutouts, lightcurves):
        monkeypatch.setattr(function, "open_objects", lambda settings: objects)
        flush = function.make_batch_storer(Settings(spool=tmp_path))
        assert flush(Batch([alert(1)], [Position("argus-alerts", 0, 0)])).outcomes == [None]
    app = make_app(Settings(), objects)
    async with app.router.lifespan_context(app):
        path = "/v1/objects/star-1/lightcurve?format=json&band="
        status, body = await get(app, path + "V9")
        assert {row["band"] for row in json.loads(body)["detections"]} == {"V9"}
        status, body = await get(app, path + "V8")
        assert (status, b"one or more of u, g, r, i, z, y, Y, J, Hs, V9" in body) == (400, True)

        page = (await get(app, "/objects/star-1"))[1].decode()
        assert re.findall('name="bands" value="(.*?)"', page) == ["g", "V9"]
        assert 'href="https://argus.example/stars/star-1"' in page
        style = re.search("/static/page[.0-9a-f]+css", page)
        assert style
        css = (await get(app, style[0]))[1].decode()
        assert ".band-V9 { color: #8a5a00; }" in css.partition("prefers-color-scheme")[2]
        assert ".band-V9 { color: #e0b050; }" in css.rpartition("prefers-color-scheme")[2]
        assert "section:has(#show-V9:not(:checked)) .plot .band-V9 { display: none; }" in css
        _, body = await get(app, "/objects/star-1?bands=V9")
        assert re.findall('value="(.*?)" checked', body.decode())[0] == "V9"
        assert (await get(app, "/objects/star-1?bands=V8"))[0] == 400


def test_an_alert_that_two_surveys_may_have_sent_is_of_neither(monkeypatch) -> None:
    twin = SimpleNamespace(**vars(argus) | {"NAME": "twin"})
    monkeypatch.setattr(surveys, "_load", lambda module: twin if module == "twin" else argus)
    monkeypatch.setattr(surveys, "MODULES", {"argus": "argus", "twin": "twin"})
    schema = argus.built_in_schemas()[7]
    with pytest.raises(Unusable, match=r"the schema alert has the fields of ARGUS's and TWIN's"):
        writer_schema(schema)
    assert writer_schema(schema | {"name": "twin.alert"}).survey is twin


def test_an_alert_with_the_fields_of_two_surveys_is_of_the_one_that_asks_for_more(
    monkeypatch,
) -> None:
    loose = SimpleNamespace(
        **vars(ztf) | {"NAME": "loose", "REQUIRED_FIELDS": (("objectId",), ("candidate.jd",))}
    )
    for order in (("loose", "ztf"), ("ztf", "loose")):
        monkeypatch.setattr(surveys, "_load", {"loose": loose, "ztf": ztf}.get)
        monkeypatch.setattr(surveys, "MODULES", {name: name for name in order})
        text = json.dumps(made_alerts.ztf_schema()).replace("ztf.alert", "alert")
        assert writer_schema(json.loads(text)).survey is ztf


def test_the_page_names_every_part_of_a_survey() -> None:
    page = PAGE.read_text()
    functions = [name for name, value in vars(argus).items() if callable(value)]
    functions = [name for name in functions if name in vars(Survey)]
    assert len(functions) == 6
    for name in (*Survey.__annotations__, *functions):
        assert f"`{name}`" in page, name
