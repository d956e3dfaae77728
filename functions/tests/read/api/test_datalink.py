"""Links of alerts and objects: pyvo goes from the rows of our tables to images."""

import io
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
import pyvo
from astropy.io.votable import parse
from pyvo.dal import Record
from pyvo.dal.adhoc import DatalinkResults
from pyvo.dal.exceptions import DALOverflowWarning

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.images import fits
from stampede.read.api.datalink import MOST_IDS
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from tests.support.read.read_service import (
    BOTH,
    LSST_ALERT,
    ZTF_ALERT,
    ZTF_OBJECT,
    Reader,
    sample_store,
    serving,
)
from tests.support.store.stored_packets import store, ztf_with_images
from tests.support.store.watched_objects import Watched

NAME = "ZTF18aaaaaaa"
UCDS = {  # those of the standard, of which TOPCAT logs each that differs
    "ID": "meta.id;meta.main",
    "access_url": "meta.ref.url",
    "service_def": "meta.ref",
    "error_message": "meta.code.error",
    "description": "meta.note",
    "semantics": "meta.code",
    "content_type": "meta.code.mime",
    "content_length": "phys.size;meta.file",
    "content_qualifier": "meta.code",
    "local_semantics": "meta.id.assoc",
}


def links(read: Reader, what: str, *ids: object, method: str = "GET") -> DatalinkResults:
    """The links of these ids; astropy finds no fault with the document."""
    form = urlencode([("ID", each) for each in ids])
    path = f"/v1/links/{what}" if method == "POST" else f"/v1/links/{what}?{form}"
    got = read(path, method, form.encode() if method == "POST" else None)
    assert got.status == 200, got.data
    assert got.headers["content-type"] == "application/x-votable+xml;content=datalink"
    return DatalinkResults(parse(io.BytesIO(got.data), verify="exception"))


def of(found: DatalinkResults, semantics: str) -> list[Record]:
    """The links of that meaning; pyvo's own method needs the vocabulary from the network."""
    return [row for row in found if row["semantics"] == semantics]


def test_the_document_is_as_the_standard_says(read: Reader) -> None:
    found = links(read, "alerts", ZTF_ALERT)
    (resource,) = found.votable.resources
    infos = {info.name: info.value for info in resource.infos}
    assert infos["standardID"] == "ivo://ivoa.net/std/DataLink#links-1.1"
    fields = found.votable.get_first_table().fields
    assert {field.name: field.ucd for field in fields} == UCDS
    (length,) = (field for field in fields if field.name == "content_length")
    assert (length.datatype, length.unit) == ("long", "byte")
    for row in found:
        assert sum(bool(row[name]) for name in ("access_url", "service_def", "error_message")) == 1
        assert row["semantics"].startswith("#")


@pytest.mark.parametrize(
    ("what", "name"), [("alerts", ZTF_ALERT), ("alerts", LSST_ALERT), ("objects", ZTF_OBJECT)]
)
def test_each_link_leads_to_what_it_says(read: Reader, what: str, name: object) -> None:
    found = links(read, what, name)
    assert len(found) > 4
    for row in found:
        assert row["access_url"].startswith(read.url)
        got = read(row["access_url"].removeprefix(read.url))
        assert got.status == 200, row["access_url"]
        assert got.headers["content-type"].partition(";")[0] == row["content_type"]


def test_the_images_of_an_alert_are_its_progenitors(read: Reader) -> None:
    found = links(read, "alerts", ZTF_ALERT)
    kinds = [row["local_semantics"] for row in of(found, "#progenitor")]
    assert kinds == ["science", "template", "difference"]
    assert of(found, "#this")[0]["content_type"] == "application/avro"
    science = of(found, "#progenitor")[0]
    assert fits.image(science.getdataset().read()).shape == (63, 63)
    kinds = [row["local_semantics"] for row in links(read, "alerts", LSST_ALERT)]
    assert "template" not in kinds  # it was not sent


def test_an_alert_of_two_surveys_has_the_links_of_both(read: Reader) -> None:
    urls = [row["access_url"] for row in links(read, "alerts", BOTH)]
    assert any("survey=lsst" in url for url in urls)
    assert any("survey=ztf" in url for url in urls)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_each_id_has_its_rows_together(read: Reader, method: str) -> None:
    asked = [str(LSST_ALERT), "12345", "a b<&>", str(ZTF_ALERT), "\0ü"]
    found = links(read, "alerts", *asked, method=method)
    ids = [row["ID"] for row in found]
    assert [*dict.fromkeys(ids)] == [*asked[:-1], "\ufffdü"]
    wrong = {row["ID"]: row["error_message"] for row in found if row["error_message"]}
    assert wrong["12345"] == "NotFoundFault: no alert 12345 is stored"
    assert wrong["a b<&>"].startswith("UsageFault: not an alert id")
    found = links(read, "objects", "ZTF99nothing", "no/object", ZTF_OBJECT, method=method)
    wrong = {row["ID"]: row["error_message"] for row in found if row["error_message"]}
    assert wrong["ZTF99nothing"].startswith("NotFoundFault: ")
    assert wrong["no/object"].startswith("UsageFault: ")


def test_no_id_and_too_many(read: Reader) -> None:
    assert len(links(read, "alerts")) == len(links(read, "objects")) == 0
    with pytest.warns(DALOverflowWarning):
        found = links(read, "alerts", *range(1, MOST_IDS + 2))
    assert [row["ID"] for row in found] == [str(number) for number in range(1, MOST_IDS + 1)]
    (resource,) = found.votable.resources
    assert [info.value for info in resource.infos if info.name == "QUERY_STATUS"] == [
        "OK",
        "OVERFLOW",
    ]


def test_names_and_formats(read: Reader) -> None:
    for query in (f"id={ZTF_ALERT}&x=1", f"Id={ZTF_ALERT}&responseFormat=VOTable"):
        assert b"#progenitor" in read(f"/v1/links/alerts?{query}").data
    accepted = quote("application/x-votable+xml;content=datalink")
    assert read(f"/v1/links/alerts?RESPONSEFORMAT={accepted}").status == 200
    got = read("/v1/links/alerts?RESPONSEFORMAT=csv")
    assert (got.status, got.headers["content-type"]) == (400, "application/x-votable+xml")
    file = parse(io.BytesIO(got.data), verify="exception")
    (status,) = file.resources[0].infos
    assert (status.value, status.content) == (
        "ERROR",
        "UsageFault: RESPONSEFORMAT must be votable: 'csv'",
    )
    assert read("/v1/links/alerts", "POST", b"x" * (1 << 17)).status == 413


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Reader]:
    """A server of two alerts of one object, with packets and positions."""
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path, refresh_seconds=0)
    store(settings, [ztf_with_images(number, 59_000.0 + number) for number in (1, 2)])
    yield from serving(make_app(settings))


def test_from_the_rows_of_a_cone_search_to_images(stored: Reader) -> None:
    service = pyvo.dal.SCSService(f"{stored.url}/v1/scs?")
    rows = service.search(pos=(10.0, -5.0), radius=0.01)
    (found,) = rows.iter_datalinks()
    assert found.original_row["object_id"] == rows[0]["object_id"] == NAME
    images = {row["local_semantics"]: row for row in of(found, "#progenitor")}
    assert "/v1/alerts/2/cutouts/science" in images["science"]["access_url"]  # of the latest alert
    assert fits.image(images["difference"].getdataset().read()).shape == (63, 63)
    assert len(of(rows[0].getdatalink(), "#this")) == 1


def test_from_the_rows_of_a_light_curve_to_images(stored: Reader) -> None:
    url = f"{stored.url}/v1/objects/{NAME}/lightcurve?format=votable"
    for _ in range(2):  # the second comes from memory
        rows = DatalinkResults.from_result_url(url)
        assert rows["source_id"].tolist() == [1, 2]
        for row, found in zip(rows, rows.iter_datalinks(preserve_order=True), strict=True):
            (packet,) = of(found, "#this")
            assert f"/v1/alerts/{row['source_id']}/packet?format=ocf" in packet["access_url"]
            image = of(found, "#progenitor")[0]
            assert fits.image(image.getdataset().read()).shape == (63, 63)


def services(document: bytes) -> Iterator[str]:
    for resource in parse(io.BytesIO(document)).resources:
        if resource.utype == "adhoc:service":
            yield next(one.value for one in resource.params if one.name == "accessURL")


def test_the_service_is_at_the_host_that_the_client_asks(read: Reader) -> None:
    """And what is kept for one host is not what another one gets."""
    for path in (
        f"/v1/objects/{ZTF_OBJECT}/lightcurve?format=votable",
        "/v1/cone?ra=10&dec=-5&radius=5&format=votable",
        "/v1/scs?RA=10&DEC=-5&SR=0.001",
    ):
        for host in ("one.example", "other.example:8443"):
            (url,) = services(read(path, headers={"Host": host}).data)
            assert url.startswith(f"http://{host}/v1/links/")
        (url,) = services(read(path, headers={"Host": 'a"b'}).data)
        assert url.startswith(f"{read.url}/")


def test_links_that_may_be_lacking_are_told() -> None:
    """A foreign object may hold any alert."""
    objects = sample_store()
    objects.put(f"tables/cutouts/0000-{'a' * 32}.parquet", b"what is this?")
    for read in serving(make_app(Settings(refresh_seconds=0), objects)):
        got = read(f"/v1/links/objects?ID={ZTF_OBJECT}")
        infos = parse(io.BytesIO(got.data)).resources[0].infos
        assert [info.value for info in infos if info.name == "incomplete"] == [
            got.headers["stampede-incomplete"]
        ]
        assert b"#progenitor" in got.data


def test_a_store_that_is_down_is_an_error_document() -> None:
    def fail(number: int) -> None:
        raise StoreDown("no answer")

    for read in serving(make_app(Settings(), Watched(MemoryObjects(), fail))):
        for path in ("alerts?ID=1", "objects?ID=Z1", "alerts?ID=1&ID=2"):
            got = read(f"/v1/links/{path}")
            assert (got.status, got.headers["content-type"]) == (503, "application/x-votable+xml")
            (status,) = parse(io.BytesIO(got.data), verify="exception").resources[0].infos
            assert status.content == "TransientFault: no answer"
