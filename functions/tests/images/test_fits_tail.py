import gzip
import time
from io import BytesIO

import numpy as np
import pytest
from astropy.io import fits as astropy_fits
from hypothesis import given
from hypothesis import strategies as st

from stampede.images.fits_tail import Layouts, split
from stampede.images.hdu import BLOCK
from tests.support.alerts import made_alerts
from tests.support.alerts.avro_reading import records
from tests.support.alerts.fits_files import fits_file, lsst, source, ztf

needs_real = pytest.mark.skipif(
    not made_alerts.REAL.is_dir(), reason="the real alerts (../shared/data) are not here"
)
RUBIN = lsst(source(size=30))


def parts(files) -> list[tuple[bytes | None, bytes | None]]:
    """The heads and tails; they are checked to be valid, and to give the files back."""
    heads, tails = split([file if file is None else memoryview(file) for file in files])
    for one in (heads, tails):
        assert [each is None for each in one] == [file is None for file in files]
    both = [
        (head if head is None else bytes(head), tail if tail is None else bytes(tail))
        for head, tail in zip(heads, tails, strict=True)
    ]
    for (head, tail), file in zip(both, files, strict=True):
        assert file is None or head + tail == file
    return both


def last_hdu(file: bytes) -> int:
    """Where the last HDU begins, as astropy says; the file's length if it has only one."""
    with astropy_fits.open(BytesIO(file)) as hdus:
        return hdus[-1].fileinfo()["hdrLoc"] if len(hdus) > 1 else len(file)


@st.composite
def fits_files(draw) -> bytes:
    """One to four HDUs: images of any type and size, tables, HDUs without data."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    hdus = []
    for number in range(draw(st.integers(1, 4))):
        shape = tuple(draw(st.lists(st.integers(1, 30), max_size=3)))
        kind = draw(st.sampled_from(["u1", "i2", "i4", "i8", "f4", "f8"]))
        pixels = rng.integers(0, 99, shape).astype(kind) if shape else None
        if number and draw(st.booleans()):
            column = astropy_fits.Column("a", "PE()", array=np.array([[1.0], [2.0, 3.0]], object))
            hdus.append(astropy_fits.BinTableHDU.from_columns([column]))
        else:
            hdus.append((astropy_fits.ImageHDU if number else astropy_fits.PrimaryHDU)(pixels))
        for key in range(draw(st.integers(0, 40))):
            hdus[-1].header[f"KEY{key}"] = key
    return fits_file(*hdus)


@given(st.lists(fits_files(), min_size=1, max_size=4))
def test_a_tail_is_what_astropy_takes_for_the_last_hdu(files):
    for file in files:  # alone: two of one layout may differ behind their first image
        assert Layouts().cut(memoryview(file)) == last_hdu(file)
    parts(files)


JUNK = st.binary(max_size=40) | st.sampled_from([b"SIMPLE" * 1000, RUBIN[:-1], RUBIN + b"?"])
DAMAGED = st.builds(
    lambda at, piece: RUBIN[:at] + piece + RUBIN[at + len(piece) :],
    st.integers(0, len(RUBIN) - 1) | st.integers(0, 12 * 80),
    st.binary(min_size=1, max_size=20) | st.sampled_from([b"99999999", b"END".ljust(80), b"-"]),
)
ANYTHING = st.none() | JUNK | DAMAGED | fits_files() | st.just(ztf(source())) | st.just(RUBIN)


@given(st.lists(ANYTHING, max_size=8))
def test_head_and_tail_give_back_any_bytes(files):
    parts(files)


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"x",
        ztf(source()),
        gzip.compress(RUBIN, mtime=0),
        RUBIN[:3000],
        RUBIN + b"?",
        b"SIMPLE" * 999,
    ],
    ids=["empty", "short", "ztf", "gzipped", "cut short", "too long", "no header"],
)
def test_what_is_not_a_whole_fits_file_has_no_tail(file):
    assert parts([file, None, RUBIN])[0] == (file, b"")


def test_a_single_hdu_has_no_tail():
    file = fits_file(astropy_fits.PrimaryHDU(source()))
    assert parts([file]) == [(file, b"")]


def test_no_files():
    assert parts([]) == []
    assert parts([None]) == [(None, None)]
    assert parts([b"", None]) == [(b"", b""), (None, None)]


def test_files_of_a_known_layout_are_cut_without_walking_their_headers(monkeypatch):
    layouts = Layouts()
    assert layouts.cut(memoryview(RUBIN)) == last_hdu(RUBIN)
    monkeypatch.setattr("stampede.images.fits_tail.hdu_at", None)  # to call it would fail
    assert layouts.cut(memoryview(lsst(source(size=30, seed=2)))) == last_hdu(RUBIN)


def test_a_damaged_file_does_not_spoil_its_layout():
    layouts = Layouts()
    damaged = bytearray(RUBIN)
    damaged[last_hdu(RUBIN)] = 0
    assert layouts.cut(memoryview(bytes(damaged))) == len(RUBIN)
    assert layouts.cut(memoryview(RUBIN)) == last_hdu(RUBIN)


def test_another_file_of_the_same_layout_is_walked_if_no_hdu_begins_at_the_known_place():
    long, short = (astropy_fits.ImageHDU(np.zeros(size, "u1")) for size in (3000, 10))
    first = fits_file(astropy_fits.PrimaryHDU(), long, short)
    second = fits_file(astropy_fits.PrimaryHDU(), short, long)
    layouts = Layouts()
    for file in (first, second, first):
        assert layouts.cut(memoryview(file)) == last_hdu(file)


def test_layouts_are_bounded(monkeypatch):
    monkeypatch.setattr("stampede.images.fits_tail.MOST_LAYOUTS", 3)
    layouts = Layouts()
    for size in range(1, 9):
        file = lsst(source(size=size))
        assert layouts.cut(memoryview(file)) == last_hdu(file)
    assert len(layouts._cuts) <= 3


def test_an_endless_header_costs_little():
    endless = fits_file(astropy_fits.PrimaryHDU())[: 5 * 80].ljust(8 << 20)
    started = time.thread_time()
    assert parts([endless]) == [(endless, b"")]
    assert time.thread_time() - started < 0.5


@needs_real
@pytest.mark.real
def test_real_cutouts_of_rubin_are_cut_before_their_psf():
    files = [file for alert in made_alerts.real_rubin_cutouts() for file in alert.values()]
    assert len(files) == 24
    for file, (head, tail) in zip(files, parts(files), strict=True):
        assert len(head) == last_hdu(file) < len(file)
        assert b"PSFIMAGE" in tail[:BLOCK]


@needs_real
@pytest.mark.real
def test_real_stamps_of_ztf_have_no_tail():
    alerts = [records(body)[0] for body in made_alerts.real_alerts()[5:]]
    stamps = [alert["cutoutScience"]["stampData"] for alert in alerts]
    assert parts(stamps) == [(stamp, b"") for stamp in stamps]
    parts([gzip.decompress(stamp) for stamp in stamps])
