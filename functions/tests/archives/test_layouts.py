"""Which column of a file says what."""

import pytest

from stampede.archives.layouts import Asked, Layout, Part
from stampede.errors import SetupError

PLAIN = ["object_id", "mjd", "band", "ra", "dec", "mag", "magerr"]
ZTF = ["objectid", "filterid", "fieldid", "rcid", "objra", "objdec", "nepochs", "hmjd", "mag",
       "magerr", "clrcoeff", "catflags"]  # fmt: skip


def layout(names: list[str], *columns: str, format: str | None = None, bands: tuple = ()) -> Layout:
    return Layout.of(names, Asked.of(format, columns, bands))


def test_a_data_release_of_ztf_is_recognised() -> None:
    found = layout(ZTF)
    assert (found.format, found.epoch, found.scale, found.measure) == ("ztf-dr", 0, "utc", Part.MAG)
    assert {found.bands[name] for name in "123"} == {"g", "r", "i"}
    assert found.columns == {
        Part.OBJECT_ID: "objectid",
        Part.TIME: "hmjd",
        Part.BAND: "filterid",
        Part.RA: "objra",
        Part.DEC: "objdec",
        Part.MAG: "mag",
        Part.ERROR: "magerr",
        Part.DETECTOR: "rcid",
        Part.QUALITY: "catflags",
    }


def test_a_catalogue_of_a_data_release_has_them_in_records() -> None:
    nested = [f"lc.{name}" if name in ("hmjd", "mag", "magerr", "catflags") else name
              for name in ZTF]  # fmt: skip
    found = layout(nested)
    assert (found.format, found.columns[Part.TIME]) == ("ztf-dr", "lc.hmjd")
    assert found.bands["1"] == "g"


def test_usual_names_need_not_be_told() -> None:
    found = layout(["oid", "hjd", "filtercode", "RA", "Decl", "magnitude", "mag_err"])
    assert (found.format, found.epoch, found.scale) == ("columns", 2400000.5, "utc")
    assert found.columns[Part.DEC] == "Decl"
    assert found.columns[Part.ERROR] == "mag_err"
    assert found.bands["zg"] == "g"


def test_rubins_sources_are_in_nanojansky_and_tai() -> None:
    names = ["objectId", "expMidptMJD", "band", "coord_ra", "coord_dec", "psfFlux", "psfFluxErr"]
    found = layout(names)
    assert (found.scale, found.measure, found.nanojansky) == ("tai", Part.FLUX, 1.0)


def test_fields_of_records_are_found_by_their_last_names() -> None:
    names = ["id", "ra", "dec", "lc.mjd", "lc.band", "lc.mag", "lc.magerr"]
    found = layout(names, "object_id=id")
    assert found.columns[Part.TIME] == "lc.mjd"


def test_what_is_told_counts() -> None:
    found = layout(
        ["name", "t", "F", "ra", "dec", "uJy", "duJy", "flux"],
        *("object_id=name", "time=t:jd-tdb", "band=F", "difference=uJy:uJy", "error=duJy"),
        bands=("cyan=c",),
    )
    assert (found.epoch, found.scale) == (2400000.5, "tdb")
    assert (found.measure, found.nanojansky) == (Part.DIFFERENCE, 1000.0)
    assert Part.FLUX not in found.columns
    assert found.bands["cyan"] == "c"
    assert "time t (JD, TDB)" in found.described
    assert "difference uJy (µJy)" in found.described


WRONG = {
    "no column for the time": (
        ["object_id", "band", "ra", "dec", "mag"],
        "it has no column that is known for time: name it with --column time=COLUMN; "
        "it has object_id, band, ra, dec, mag",
    ),
    "two measures": ([*PLAIN, "flux"], "it has mag and flux: say which to take, for example "
                     "--column mag=mag"),
    "none": (["object_id", "mjd", "band", "ra", "dec"], "it has no column that is known for mag: "
             "name it with --column mag=COLUMN; it has object_id, mjd, band, ra, dec"),
}  # fmt: skip


@pytest.mark.parametrize(("names", "message"), WRONG.values(), ids=[*WRONG])
def test_a_file_that_cannot_be_read(names: list[str], message: str) -> None:
    with pytest.raises(SetupError) as raised:
        layout(names)
    assert raised.value.message == message


OPTIONS = {
    "format": (("fits", [], []), "--format is one of ztf-dr, columns, not 'fits'"),
    "part": ((None, ["epoch=t"], []), "--column epoch=t: write PART=COLUMN, where PART is one of "),
    "no column": ((None, ["time="], []), "--column time=: write PART=COLUMN"),
    "unit": ((None, ["flux=f:erg"], []), "--column flux=f:erg: the unit is one of njy, ujy, mjy"),
    "scale": ((None, ["time=t:mjd-ut1"], []), "--column time=t:mjd-ut1: the unit is one of mjd-u"),
    "two": ((None, ["mag=m", "flux=f"], []), "--column names mag and flux: a point has one"),
    "band": ((None, [], ["g"]), "--band g: write NAME=BAND, for example 1=g"),
    "both": (("ztf-dr", ["mag=m"], []), "--column is for files in the format columns"),
}


@pytest.mark.parametrize(("asked", "message"), OPTIONS.values(), ids=[*OPTIONS])
def test_an_option_that_is_wrong(asked: tuple, message: str) -> None:
    with pytest.raises(SetupError) as raised:
        Asked.of(*asked)
    assert raised.value.message.startswith(message)


def test_a_column_that_is_told_and_not_there() -> None:
    with pytest.raises(SetupError, match="it has no column m for mag; it has object_id, mjd"):
        layout(PLAIN, "mag=m")
    with pytest.raises(SetupError, match=r"it lacks objectid, filterid, objra, objdec, hmjd$"):
        layout(PLAIN, format="ztf-dr")
