"""Several FITS files as one: nothing is lost, and astropy finds no fault."""

import gzip
from io import BytesIO

import numpy as np
import pytest
from astropy.io import fits

from stampede.images.hdu import BadImage
from stampede.images.joined_file import joined
from tests.support.alerts.fits_files import fits_file, fits_of, source

PIXELS = source(11)


def opened(data: bytes) -> fits.HDUList:
    """A FITS file that astropy finds no fault with. Raises `fits.VerifyError`."""
    assert len(data) % 2880 == 0
    file = fits.open(BytesIO(data), lazy_load_hdus=False, checksum=True)
    file.verify("exception")
    return file


def test_tables_and_nameless_hdus_come_along() -> None:
    table = fits.BinTableHDU.from_columns([fits.Column("x", "J", array=np.arange(5))])
    compressed = fits.CompImageHDU(PIXELS.astype(np.int16), name="MASK")
    file = fits_file(fits.PrimaryHDU(), fits.ImageHDU(PIXELS), table, compressed)
    found = opened(joined({"SCIENCE": gzip.compress(file)}, {"OBJECT": "ZTF1"}))
    names = [hdu.name for hdu in found]
    assert names == ["PRIMARY", "SCIENCE_0", "SCIENCE", "SCIENCE_2", "SCIENCE_MASK"]
    assert found[0].header["OBJECT"] == "ZTF1"
    assert found[1].data is None
    assert found["SCIENCE_2"].data["x"].tolist() == [0, 1, 2, 3, 4]
    assert np.array_equal(found["SCIENCE"].data, PIXELS)
    assert np.array_equal(found["SCIENCE_MASK"].data, PIXELS.astype(np.int16))


def test_a_checksum_of_the_header_goes_and_that_of_the_data_stays() -> None:
    out = BytesIO()
    fits.PrimaryHDU(PIXELS).writeto(out, checksum=True)
    (_, image) = opened(joined({"SCIENCE": out.getvalue()}, {}))
    assert "CHECKSUM" not in image.header
    assert image.verify_datasum() == 1


def test_what_is_not_quite_fits_becomes_it() -> None:
    """Text that is not ASCII, data without padding, and ZTF's first card."""
    file = fits_of(3, 3, -32)
    file = b"SIMPLE  =  T".ljust(80) + file[80:]
    end = file.index(b"END".ljust(80))
    remark = "COMMENT größer\0".encode().ljust(80)
    file = file[:end] + remark + b"END".ljust(80) + file[end + 160 : 2880 + 36]
    (_, image) = opened(joined({"TEMPLATE": file}, {}))
    assert image.data.shape == (3, 3)
    assert [*image.header["COMMENT"]] == ["gr????er?"]


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"no file", "science image: "),
        (gzip.compress(b"x", mtime=0)[:-1], "the science image: the gzip"),
    ],
)
def test_what_is_no_fits_file_is_named(file: bytes, why: str) -> None:
    with pytest.raises(BadImage, match=why):
        joined({"SCIENCE": file}, {})
