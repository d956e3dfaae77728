"""A packet as a container, as JSON and as one FITS file; and its schema."""

import base64
import gzip
import io
import math
from collections.abc import Iterator
from typing import Any

import fastavro
import numpy as np
import pytest
from astropy.io import fits

from stampede.alerts import container
from stampede.alerts.columns import KINDS
from stampede.alerts.surveys.rubin_schemas import rubin_schemas
from stampede.config.settings import Settings
from stampede.handlers import cutouts, lightcurves
from stampede.read.app import make_app
from stampede.store.open import open_objects
from stampede_local.demo import oracle
from tests.support.alerts import fits_files, made_alerts
from tests.support.alerts.fits_files import source
from tests.support.read.read_service import Reader, serving
from tests.support.store.stored_packets import FIELDS, store, ztf_with_images


@pytest.fixture
def read(settings: Settings) -> Iterator[Reader]:
    yield from serving(make_app(settings))


def rubin() -> bytes:
    """An alert in Rubin's form: images of several HDUs, Confluent's framing."""
    files = [fits_files.lsst(source(seed=seed)) for seed in range(3)]
    record = made_alerts.rubin_record(1101, 3) | dict(zip(FIELDS, files, strict=True))
    return made_alerts.confluent(record, 1101)


MADE = {
    "rubin": rubin(),
    "ztf": ztf_with_images(1, 59_000.0),
    "deflate": made_alerts.ztf_alert(2, "deflate"),
}


def path_of(message: bytes, what: str = "packet") -> str:
    head = oracle.head(message)
    return f"/v1/alerts/{head['alert_id']}/{what}?survey={head['survey']}"


def messages() -> list[bytes]:
    real = made_alerts.real_alerts()[::25] if made_alerts.REAL.exists() else []
    return [*MADE.values(), *real]


def test_any_avro_reader_opens_a_container(settings: Settings, read: Reader) -> None:
    """Also of Rubin's messages, which lack their schema; and the bytes of the record stay."""
    store(settings, messages())
    for message in messages():
        got = read(f"{path_of(message)}&format=ocf")
        assert (got.status, got.headers["content-type"]) == (200, "application/avro")
        (found,) = fastavro.reader(io.BytesIO(got.data))
        assert repr(found) == repr(oracle.read_record(message)[1])
        if message[0] == 0:
            header = container.read_header(got.data)
            ((count, block),) = container.blocks(got.data, header, 1 << 24)
            assert (count, bytes(block)) == (1, message[5:])
        else:
            assert got.data == message


def test_a_format_has_a_tag_of_its_own(settings: Settings, read: Reader) -> None:
    store(settings, [MADE["ztf"]])
    path = path_of(MADE["ztf"])
    tags = {
        format: read(f"{path}&format={format}").headers["etag"]
        for format in ("avro", "ocf", "json", "fits")
    }
    assert len({*tags.values()}) == 4
    assert read(path).headers["etag"] == tags["avro"]
    for format, tag in tags.items():
        url = f"{path}&format={format}"
        assert read(url, headers={"If-None-Match": tag}).status == 304
        part = read(url, headers={"Range": "bytes=1-9"})
        assert (part.status, part.data) == (206, read(url).data[1:10])


def test_an_unknown_format_is_told(settings: Settings, read: Reader) -> None:
    got = read("/v1/alerts/1/packet?format=xml")
    assert (got.status, got.json()["parameter"]) == (400, "format")
    assert got.json()["detail"].startswith("must be one of avro, ocf, json, fits")


def test_the_schema_is_that_of_the_writer(settings: Settings, read: Reader) -> None:
    store(settings, messages())
    for message in messages():
        got = read(path_of(message, "schema"))
        assert (got.status, got.headers["content-type"]) == (200, "application/json")
        sent = message[0] != 0 and container.read_header(message).schema
        assert got.json() == (sent or rubin_schemas()[int.from_bytes(message[1:5], "big")])
    alert = read("/v1/alerts/1").json()
    assert alert["schema"] == "/v1/alerts/1/schema"


def same(found: Any, sent: Any) -> None:
    """Hold JSON to a record that fastavro decoded."""
    if isinstance(sent, dict):
        assert [*found] == [*sent]
        for name, value in sent.items():
            same(found[name], value)
    elif isinstance(sent, list):
        assert len(found) == len(sent)
        for each, value in zip(found, sent, strict=True):
            same(each, value)
    elif isinstance(sent, bytes):
        assert base64.b64decode(found) == sent
    elif isinstance(sent, float) and not math.isfinite(sent):
        assert found is None
    elif isinstance(sent, int) and not isinstance(sent, bool):
        assert int(found) == sent
    else:
        assert found == (sent.isoformat() if hasattr(sent, "isoformat") else sent)


def test_json_has_the_whole_record(settings: Settings, read: Reader) -> None:
    store(settings, messages())
    for message in messages():
        got = read(f"{path_of(message)}&format=json")
        assert (got.status, got.headers["content-type"]) == (200, "application/json")
        same(got.json(), oracle.read_record(message)[1])
    assert isinstance(read("/v1/alerts/1/packet?format=json").json()["candid"], str)


def opened(data: bytes) -> fits.HDUList:
    """A FITS file that astropy finds no fault with. Raises `fits.VerifyError`."""
    file = fits.open(io.BytesIO(data), lazy_load_hdus=False)
    file.verify("exception")
    return file


def test_all_images_are_in_one_file(settings: Settings, read: Reader) -> None:
    store(settings, messages())
    for message in messages():
        if message is MADE["deflate"]:
            continue  # its images are no FITS files
        got = read(f"{path_of(message)}&format=fits")
        assert (got.status, got.headers["content-type"]) == (200, "application/fits")
        head, found = oracle.head(message), opened(got.data)
        assert found[0].header["OBJECT"] == head["object_id"]
        assert found[0].header["ALERTID"] == str(head["alert_id"])
        names = [hdu.name for hdu in found[1:]]
        assert len({*names}) == len(names)
        record, rest = oracle.read_record(message)[1], iter(found[1:])
        for kind, field in zip(KINDS, FIELDS, strict=True):
            sent = record[field]
            data = sent["stampData"] if isinstance(sent, dict) else sent
            if data is None:
                continue
            whole = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            whole = b"SIMPLE  =                    T".ljust(80) + whole[80:]  # ZTF's is not FITS
            assert_same(fits.open(io.BytesIO(whole)), rest, kind.upper())
        assert next(rest, None) is None


def assert_same(sent: fits.HDUList, found: Iterator[Any], name: str) -> None:
    for number, (hdu, other) in enumerate(zip(sent, found, strict=False)):
        assert other.name == (f"{name}_{hdu.name}" if number else name)
        assert np.array_equal(other.data, hdu.data, equal_nan=hdu.data.dtype.kind == "f")
        for card in hdu.header.cards:
            if card.keyword not in ("SIMPLE", "EXTEND", "EXTNAME", "XTENSION", "CHECKSUM"):
                assert other.header[card.keyword] == card.value


def test_hdus_keep_their_names(settings: Settings, read: Reader) -> None:
    store(settings, [MADE["rubin"]])
    found = opened(read(f"{path_of(MADE['rubin'])}&format=fits").data)
    of_each = [
        (kind, f"{kind}_UNCERT", f"{kind}_PSFIMAGE")
        for kind in ("SCIENCE", "TEMPLATE", "DIFFERENCE")
    ]
    assert [hdu.name for hdu in found] == ["PRIMARY", *(name for kind in of_each for name in kind)]


def test_images_that_were_not_sent_are_left_out(settings: Settings, read: Reader) -> None:
    one = {"fileName": "x", "stampData": fits_files.ztf_source(1)}
    none: dict[str, Any] = dict.fromkeys(FIELDS)
    alerts = [made_alerts.ztf_alert(3, **none | {"cutoutTemplate": one})]
    store(settings, [*alerts, made_alerts.ztf_alert(4, **none)])
    found = opened(read("/v1/alerts/3/packet?format=fits").data)
    assert [hdu.name for hdu in found] == ["PRIMARY", "TEMPLATE"]
    got = read("/v1/alerts/4/packet?format=fits")
    assert (got.status, got.json()["type"]) == (404, "urn:stampede:problem:no-such-cutout")


def test_an_image_that_is_no_fits_file_is_named(settings: Settings, read: Reader) -> None:
    store(settings, [MADE["deflate"]])
    got = read("/v1/alerts/2/packet?format=fits")
    assert (got.status, got.json()["type"]) == (422, "urn:stampede:problem:bad-image")
    assert got.json()["detail"].startswith("the science image: ")


def test_damaged_images_are_told(settings: Settings, read: Reader) -> None:
    store(settings, [MADE["ztf"]])
    objects = open_objects(settings)
    for info in list(objects.list("packs/")):
        objects.delete(info.key)
    got = read("/v1/alerts/1/packet?format=fits")
    assert (got.status, got.json()["type"]) == (502, "urn:stampede:problem:damaged-image")


def test_what_needs_the_packet_says_that_it_is_lacking(settings: Settings, read: Reader) -> None:
    store(settings, [MADE["ztf"]], functions=[cutouts])
    for path in ("packet?format=ocf", "packet?format=json", "schema"):
        got = read(f"/v1/alerts/1/{path}")
        assert (got.status, got.json()["type"]) == (404, "urn:stampede:problem:no-packet")
    assert read("/v1/alerts/1/packet?format=fits").status == 200
    assert read("/v1/alerts/1").json()["schema"] is None
    store(settings, [MADE["ztf"]], functions=[lightcurves])
    assert read("/v1/alerts/1/schema").json()["name"] == "ztf.alert.alert"
