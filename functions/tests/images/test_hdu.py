from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
from astropy.io import fits as astropy_fits

from stampede.images.hdu import BLOCK, CARD, MOST_HEADER, BadImage, hdu_at
from tests.support.alerts.fits_files import fits_file, source


def cards(*texts: str) -> bytes:
    header = b"".join(text.encode().ljust(CARD) for text in (*texts, "END"))
    return header + b" " * (-len(header) % BLOCK)


EMPTY = ("SIMPLE  = T", "BITPIX  = 8", "NAXIS   = 0")


@pytest.mark.parametrize("view", [bytes, memoryview])
def test_each_hdu_is_where_astropy_finds_it(view) -> None:
    pixels = source(size=21)
    table = astropy_fits.BinTableHDU.from_columns([astropy_fits.Column("a", "E", array=np.ones(3))])
    hdus = [astropy_fits.PrimaryHDU(pixels), table, astropy_fits.ImageHDU(pixels.astype(">i2"))]
    file = fits_file(*hdus)
    with astropy_fits.open(BytesIO(file)) as opened:
        places = [hdu.fileinfo() for hdu in opened]
    starts = [place["hdrLoc"] for place in places]
    found = [hdu_at(view(file), start) for start in starts]
    assert [hdu.data for hdu in found] == [place["datLoc"] for place in places]
    assert [hdu.is_image for hdu in found] == [True, False, True]
    assert [hdu.shape for hdu in found] == [(21, 21), (3, 4), (21, 21)]
    assert [hdu.dtype.str for hdu in found] == [">f4", "|u1", ">i2"]
    assert all(one.stop <= start for one, (_, start) in zip(found, pairwise(starts), strict=False))


def test_the_first_of_equal_cards_counts() -> None:
    hdu = hdu_at(cards(*EMPTY, "BZERO   = 1.5D1 / why", "BZERO   = 3"), 0)
    assert hdu.number(b"BZERO", 0) == 15
    assert hdu.number(b"BSCALE", 1) == 1


def test_a_card_without_a_value_is_none() -> None:
    hdu = hdu_at(cards(*EMPTY, "COMMENT = 3", "BZERO     4"), 0)
    assert hdu.number(b"BZERO", 0) == 0


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(BadImage, match="FITS card BZERO is not a number: 'much'"):
        hdu_at(cards(*EMPTY, "BZERO   = 'much  '"), 0).number(b"BZERO", 0)


def test_more_pixels_than_python_writes_digits_for() -> None:
    axes = [f"NAXIS{axis + 1:<3}= 999999999" for axis in range(999)]
    with pytest.raises(BadImage, match="its data beyond any file"):
        hdu_at(cards("SIMPLE  = T", "BITPIX  = 8", "NAXIS   = 999", *axes), 0)


def test_a_header_is_read_up_to_its_bound() -> None:
    most = MOST_HEADER // CARD - len(EMPTY) - 1
    assert hdu_at(cards(*EMPTY, *["COMMENT"] * most), 0).data == MOST_HEADER
    with pytest.raises(BadImage, match="header does not end"):
        hdu_at(cards(*EMPTY, *["COMMENT"] * (most + 1)), 0)
