"""The client gives what the server stores, on a real server."""

import inspect
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import astropy.io.fits
import numpy as np
import pytest
from astropy.coordinates import SkyCoord
from astropy.nddata import VarianceUncertainty
from astropy.time import Time
from astropy.units import Unit

import stampede_client
from stampede_client import (
    AsyncClient,
    BadInput,
    Client,
    Cutouts,
    IncompleteWarning,
    MissingWarning,
)
from stampede_client.queries import PacketFormat
from tests.support.alerts import made_alerts
from tests.support.alerts.fits_files import source
from tests.support.read.read_service import (
    BOTH,
    LSST_ALERT,
    LSST_OBJECT,
    ZTF_ALERT,
    ZTF_OBJECT,
    sample_cutouts,
    sample_points,
)


def test_a_light_curve_is_a_time_series_in_tai(st: Client) -> None:
    curve = st.lightcurve(ZTF_OBJECT)
    assert curve.time.scale == "tai"
    assert list(curve.time.mjd) == [59398.0, 59399.0, 59400.0, 59401.0]
    assert curve["flux"].unit == Unit("nJy")
    assert curve["ra"].unit == Unit("deg")
    assert np.array_equal(curve["flux"].value, [np.nan, -50.0, 1234.5, np.nan], equal_nan=True)
    assert list(curve["limit"]) == [True, False, False, False]
    assert list(curve["source_id"]) == [2, 3, ZTF_ALERT, 4]
    assert curve["visit"][0] is np.ma.masked
    assert list(curve["band"]) == ["g", "g", "r", "r"]


def test_its_columns_are_those_of_the_server(st: Client) -> None:
    names = {"time" if name == "mjd" else name for name in sample_points()[0]}
    assert names <= set(st.lightcurve(ZTF_OBJECT).colnames)


def test_magnitudes_on_request(st: Client) -> None:
    curve = st.lightcurve(LSST_OBJECT, magnitudes=True)
    expected = 31.4 - 2.5 * np.log10(curve["flux"].value)
    assert np.allclose(curve["mag"].value, expected, atol=1e-4)


def test_points_may_be_chosen(st: Client) -> None:
    assert list(st.lightcurve(ZTF_OBJECT, band="r")["band"]) == ["r", "r"]
    assert len(st.lightcurve(ZTF_OBJECT, band=["g", "r"])) == 4
    some = st.lightcurve(ZTF_OBJECT, start=59399, end=Time(59400.0, format="mjd", scale="tai"))
    assert list(some.time.mjd) == [59399.0, 59400.0]
    assert st.lightcurve(ZTF_OBJECT, forced=True)["forced"].all()
    assert len(st.lightcurve(ZTF_OBJECT, band="z")) == 0
    with pytest.raises(BadInput, match="band"):
        st.lightcurve(ZTF_OBJECT, band="x")


# `pytest.warns` emits again what the collector says meanwhile of files of earlier tests.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_unknown_objects_are_named(st: Client) -> None:
    with pytest.warns(MissingWarning, match="2 of 3 ids have no light curve here: 123456, ZTFno"):
        found = [*st.lightcurves([ZTF_OBJECT, "ZTFno", 123456])]
    assert [curve["object_id"][0] for curve in found] == [ZTF_OBJECT]


def test_object_ids_may_be_numbers(st: Client) -> None:
    assert len(st.lightcurve(int(LSST_OBJECT))) == 2


def test_cutouts_are_the_files_as_the_survey_made_them(st: Client) -> None:
    sent = {
        row["kind"]: row["fits"]
        for row in sample_cutouts()
        if row["alert_id"] == LSST_ALERT and row["fits"]
    }
    got = st.cutouts(LSST_ALERT)
    assert set(got.kinds) == {"science", "difference"}
    assert {kind: got.bytes(kind) for kind in got.kinds} == sent


def test_a_cutout_is_a_ccd(st: Client) -> None:
    ccd = st.cutouts(str(ZTF_ALERT)).ccd("science")
    assert np.array_equal(ccd.data, source(seed=0))
    assert ccd.unit == Unit("adu")
    assert (ccd.uncertainty, ccd.mask, ccd.psf) == (None, None, None)
    with st.cutouts(LSST_ALERT).hdus("science") as hdus:
        assert len(hdus) == 3


@pytest.mark.real
@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="no real alerts here")
def test_a_real_cutout_of_rubin_has_all_that_the_file_has() -> None:
    for files in made_alerts.real_rubin_cutouts():
        ccd = Cutouts("1", files, {}).ccd("science")
        with Cutouts("1", files, {}).hdus("science") as hdus:
            assert np.array_equal(ccd.uncertainty.array, hdus["UNCERT"].data)
            assert np.array_equal(ccd.psf, hdus["PSFIMAGE"].data)
            header = hdus[0].header
        assert isinstance(ccd.uncertainty, VarianceUncertainty)
        assert ccd.uncertainty.unit == Unit("nJy2")
        place = ccd.wcs.pixel_to_world(header["CRPIX1"] - 1, header["CRPIX2"] - 1)
        there = SkyCoord(header["CRVAL1"], header["CRVAL2"], unit="deg")
        assert place.separation(there).arcsec < 1e-6
        up = ccd.wcs.pixel_to_world(header["CRPIX1"] - 1, header["CRPIX2"])
        assert place.separation(up).arcsec == pytest.approx(0.2, rel=0.05)


def test_cutouts_show_themselves_in_a_notebook(st: Client) -> None:
    cutouts = st.cutouts(LSST_ALERT)
    page = cutouts._repr_html_()
    assert page.count("data:image/png;base64,") == 2
    assert "not sent" in page
    assert cutouts._repr_png_().startswith(b"\x89PNG")


def test_a_cutout_that_was_not_sent_names_the_others(st: Client) -> None:
    with pytest.raises(stampede_client.NotFound, match="use science, difference"):
        st.cutouts(LSST_ALERT).bytes("template")
    with pytest.raises(stampede_client.BadInput, match="'psf' is no kind"):
        st.cutouts(LSST_ALERT).bytes("psf")


def test_alert_packet_ledger(st: Client) -> None:
    assert st.alert(ZTF_ALERT)["object_id"] == ZTF_OBJECT
    assert [*st.alert(ZTF_ALERT, fields=["candidate"])["fields"]] == ["candidate"]
    with pytest.raises(stampede_client.BadInput, match=r"no field 'mjd'\. Known: .*candidate"):
        st.alert(ZTF_ALERT, fields=["candidate", "mjd"])
    assert st.packet(ZTF_ALERT).startswith(b"Obj\x01")
    record = json.loads(st.packet(ZTF_ALERT, format="json"))
    assert [*record] == [field["name"] for field in st.schema(ZTF_ALERT)["fields"]]
    with astropy.io.fits.open(io.BytesIO(st.packet(ZTF_ALERT, format="fits"))) as file:
        assert [hdu.name for hdu in file] == ["PRIMARY", "SCIENCE", "TEMPLATE", "DIFFERENCE"]
    with pytest.raises(stampede_client.BadInput, match="one of avro, ocf, json, fits: 'xml'"):
        st.packet(ZTF_ALERT, format=cast("PacketFormat", "xml"))
    assert {entry["table"] for entry in st.ledger()["ledger"]} == {"cutouts", "detections"}


def test_a_picture_and_a_guide(st: Client) -> None:
    for size, pixels in ((None, 63), (100, 100)):
        png = st.picture(ZTF_ALERT, "difference", size)
        assert png.startswith(b"\x89PNG")
        assert int.from_bytes(png[16:20], "big") == pixels
    with pytest.raises(BadInput, match="use one of science, template, difference"):
        st.picture(ZTF_ALERT, "sky")
    with pytest.raises(stampede_client.NotFound, match="no template cutout"):
        st.picture(LSST_ALERT, "template")
    assert st.guide().startswith("# Stampede")


def test_an_alert_of_two_surveys_needs_the_survey(st: Client) -> None:
    with pytest.raises(stampede_client.BadInput, match="in more than one survey") as caught:
        st.alert(BOTH)
    assert caught.value.problem == "ambiguous-alert"
    assert st.alert(BOTH, survey="ztf")["object_id"] == "ZTF00both"
    assert st.thumbnail(BOTH, survey="ztf").startswith(b"\x89PNG")
    assert st.cutouts(BOTH, survey="lsst").kinds == ("science", "template", "difference")


def test_an_id_that_is_not_stored_is_named(st: Client) -> None:
    with pytest.raises(stampede_client.NotFound, match=r"no alert 12345 .*check the id") as caught:
        st.cutouts(12345)
    assert caught.value.problem == "unknown-alert"
    with pytest.raises(stampede_client.NotFound, match="ZTF18nothere"):
        st.lightcurve("ZTF18nothere")


@pytest.mark.parametrize("bad", [0, -5, "007", "abc", "1/../2", True, 1.5, None, "1" * 20])
def test_what_is_no_alert_id_is_never_sent(bad: object) -> None:
    nowhere = stampede_client.connect("http://127.0.0.1:9")
    with pytest.raises(stampede_client.BadInput, match="is no alert id"):
        nowhere.alert(bad)  # type: ignore[arg-type]


def test_names_of_rubin_are_ids(st: Client) -> None:
    with pytest.raises(stampede_client.NotFound, match=r"no alert 12345 "):
        st.cutouts("LSST-AP-DS-12345")
    named = st.lightcurve(f"LSST-AP-DO-{LSST_OBJECT}")
    assert len(named) == len(st.lightcurve(LSST_OBJECT))


@pytest.mark.parametrize("given", [np.int64(12345), "12345", 12345])
def test_an_integer_of_numpy_is_an_id(st: Client, given: int | str) -> None:
    with pytest.raises(stampede_client.NotFound, match="no alert 12345"):
        st.cutouts(given)


@pytest.mark.parametrize(
    "bad", ["", "a/b", "../x", True, "x" * 65, "é", 1.7058711552393232e17, np.float64(12345), None]
)
def test_what_is_no_object_id_is_never_sent(bad: object) -> None:
    nowhere = stampede_client.connect("http://127.0.0.1:9")
    with pytest.raises(stampede_client.BadInput, match="is no object id"):
        nowhere.lightcurve(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["", "127.0.0.1:8080", "ftp://host", "http://"])
def test_what_is_no_url_is_refused(bad: str) -> None:
    with pytest.raises(stampede_client.BadInput, match="is no URL of a server"):
        stampede_client.connect(bad)


@pytest.mark.anyio
async def test_the_same_methods_can_be_awaited(url: str) -> None:
    async with stampede_client.connect_async(url) as st:
        assert len(await st.lightcurve(ZTF_OBJECT)) == 4
        assert (await st.cutouts(LSST_ALERT)).kinds == ("science", "difference")
        with pytest.raises(stampede_client.NotFound, match="no alert 12345"):
            await st.alert(12345)


def test_both_clients_have_the_same_methods() -> None:
    def methods(client: type) -> dict[str, object]:
        public = (name for name in vars(client) if not name.startswith("_"))
        return {name: inspect.signature(getattr(client, name)).parameters for name in public}

    assert methods(Client) == methods(AsyncClient)


@pytest.mark.parametrize(
    "asof", [60800.5, Time(60800.5, format="mjd", scale="tai"), LSST_ALERT, str(LSST_ALERT)]
)
def test_a_light_curve_of_then_and_what_it_may_lack(st: Client, asof: object) -> None:
    """No packet of it is kept here."""
    with pytest.warns(IncompleteWarning, match="no packet of that time is kept"):
        curve = st.lightcurve(LSST_OBJECT, asof=asof)
    assert 0 < len(curve) <= 2
    assert max(curve.time.mjd) <= 60800.5


@pytest.mark.parametrize("asof", ["yesterday", -3, Time([60000.0, 60001.0], format="mjd")])
def test_what_is_no_time_is_refused(st: Client, asof: object) -> None:
    with pytest.raises(BadInput):
        st.lightcurve(LSST_OBJECT, asof=asof)


def test_a_client_that_nobody_closes_leaves_no_connection_open(url: str) -> None:
    """Python's development mode names what is open at the end."""
    program = "import stampede_client, sys; st = stampede_client.connect(sys.argv[1]); st.recent()"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, url],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(Path(stampede_client.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert "unclosed" not in done.stderr
