"""What all pages have in common: navigation, gzip, and what other sites show of a link to one."""

import gzip
import re

import pytest

from stampede import __version__
from stampede.config.settings import Settings
from stampede.read.app import make_app
from tests.support.read.html_page import Page, html
from tests.support.read.read_service import BOTH, LSST_ALERT, ZTF_ALERT, ZTF_OBJECT, serving

PAGES = (
    "/",
    "/nights",
    "/nights/60800",
    "/proofs",
    "/proofs/ztf/59400",
    "/cone",
    "/cone?ra=10&dec=-5&radius=5",
    "/ledger",
    "/docs",
    "/help",
    f"/find?id={BOTH}",
    "/moving/2011_UW158",
    f"/objects/{ZTF_OBJECT}",
    f"/alerts/{ZTF_ALERT}",
)
REAL_PAGES = (
    "/",
    "/objects/ZTF21abiuvdk",
    "/moving/45685",
    "/objects/313853517439697046",
    "/objects/313853517439697046?axis=mag",
    "/alerts/1642404680815015001",
    "/alerts/170239611403501616",
    "/nights/2021-07-01",
    "/cone?ra=00:03:15.4&dec=%2B16:08:44&radius=5",
    "/docs",
)


@pytest.mark.parametrize("path", PAGES)
def test_each_page_leads_to_the_others_and_is_gzipped_on_demand(read, path):
    plain = read(path)
    page, _ = html(plain)
    assert "content-encoding" not in plain.headers
    links = {a["href"] for a in page.all("a")}
    assert {"/", "/nights", "/cone", "/ledger", "/docs", "/help", "/help#units"} <= links
    assert f"Stampede {__version__} keeps every alert" in plain.data.decode()
    assert len(page.all("h1")) == 1
    packed = read(path, headers={"Accept-Encoding": "br, gzip;q=0.8"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["vary"]
    assert int(packed.headers["content-length"]) == len(packed.data) < 0.7 * len(plain.data)
    assert len(gzip.decompress(packed.data)) == pytest.approx(len(plain.data), abs=100)
    refused = read(path, headers={"Accept-Encoding": "gzip;q=0, identity"})
    assert "content-encoding" not in refused.headers


def test_anchors_that_pages_lead_to_exist(read):
    """Of this page and of others, so that help is where it is looked for."""
    ids: dict[str, set[str]] = {}
    for path in PAGES:
        page, _ = html(read(path))
        here = {a["href"] for a in page.all("a") if not a["href"].startswith("https:")}
        for href in {each for each in here if "#" in each}:
            to, _, anchor = href.partition("#")
            to = to or path
            if to not in ids:
                other, _ = html(read(to))
                ids[to] = {tag["id"] for _, tag in other.tags if "id" in tag}
            assert anchor in ids[to], f"{path}: {href}"


UNITS = r"\(TAI\)|µJy|AB mag|^±$|^MJD$|^reliability$"


def test_units_have_tooltips(read):
    """Wherever a table's head or the name of a value has one."""
    shown = 0
    for path in PAGES:
        for name in re.findall(r"<(?:th|dt)\b[^>]*>([^<]*)</(?:th|dt)>", read(path).data.decode()):
            assert path == "/help" or not re.search(UNITS, name), f"{path}: {name}"
        shown += len(re.findall('<abbr title="[^"]{8,}">', read(path).data.decode()))
    assert shown > 10


def test_browsers_get_an_icon_for_their_tabs(read):
    icon = read("/favicon.ico")
    assert (icon.status, icon.headers["content-type"]) == (200, "image/svg+xml")
    assert icon.data.startswith(b"<svg")
    page, _ = html(read("/"))
    assert [link["href"] for link in page.all("link") if link["rel"] == "icon"] == ["/favicon.ico"]


def test_only_pages_are_gzipped_so(read):
    asked = {"Accept-Encoding": "gzip"}
    for path in (f"/v1/alerts/{ZTF_ALERT}/cutouts/science?format=png", "/v1/ledger"):
        assert "content-encoding" not in read(path, headers=asked).headers
    bulk = read("/v1/cutouts", "POST", str(ZTF_ALERT).encode(), headers=asked)
    assert "content-encoding" not in bulk.headers


@pytest.mark.parametrize(
    ("path", "what"),
    [(f"/objects/{ZTF_OBJECT}", "Light curve"), (f"/alerts/{LSST_ALERT}", "Cutouts and fields")],
)
def test_a_link_to_an_object_or_an_alert_has_a_picture(read, path, what):
    page, _ = html(read(path))
    graph = {m["property"]: m["content"] for m in page.all("meta") if "property" in m}
    assert path.rpartition("/")[2] in graph["og:title"]
    assert graph["og:description"].startswith(what)
    assert graph["og:image"].startswith(f"{read.url}/v1/alerts/")
    got = read(graph["og:image"].removeprefix(read.url))
    assert got.headers["content-type"] == "image/png"


def test_a_strange_host_is_not_repeated_and_a_trusted_proxy_names_the_scheme(store):
    app = make_app(Settings(trusted_proxies="127.0.0.1"), store)
    for read in serving(app):
        path = f"/alerts/{ZTF_ALERT}"
        for headers, image in (
            ({"Host": "evil$(x)"}, None),
            ({"Host": "a.example", "X-Forwarded-Proto": "https"}, "https://a.example/v1/"),
            ({"Host": "a.example", "X-Forwarded-Proto": "javascript"}, "http://a.example/v1/"),
        ):
            text = read(path, headers=headers).data.decode()
            found = re.search('og:image" content="(.*?)alerts', text)
            assert (found and found[1]) == image
            assert "evil" not in text
            assert Page(text).all("h1")
