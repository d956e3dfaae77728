"""What all pages have in common: navigation, gzip, and what other sites show of a link to one."""

import gzip
import re

import pytest

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
    f"/find?id={BOTH}",
    f"/objects/{ZTF_OBJECT}",
    f"/alerts/{ZTF_ALERT}",
)


@pytest.mark.parametrize("path", PAGES)
def test_each_page_leads_to_the_others_and_is_gzipped_on_demand(read, path):
    plain = read(path)
    page, _ = html(plain)
    assert "content-encoding" not in plain.headers
    links = {a["href"] for a in page.all("a")}
    assert {"/", "/nights", "/cone", "/ledger", "/docs"} <= links
    assert len(page.all("h1")) == 1
    packed = read(path, headers={"Accept-Encoding": "br, gzip;q=0.8"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["vary"]
    assert int(packed.headers["content-length"]) == len(packed.data) < 0.7 * len(plain.data)
    assert len(gzip.decompress(packed.data)) == pytest.approx(len(plain.data), abs=100)
    refused = read(path, headers={"Accept-Encoding": "gzip;q=0, identity"})
    assert "content-encoding" not in refused.headers


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
