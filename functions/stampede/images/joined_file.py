"""Several FITS files as one: each of their HDUs becomes an extension with a name of its own.

FITS 4.0 (Pence et al. 2010, A&A 524, A42), sections 4.4.1 and 7. The data are copied, and so are
the cards of a header but for those that say what kind of HDU it is.
"""

import re
from collections.abc import Iterator, Mapping

from stampede.images import fits
from stampede.images.hdu import BLOCK, CARD, BadImage, Hdu
from stampede.images.tiles import is_tiled

_MOST_TEXT = 68
"""Characters of a text in one card."""
# These cards are written anew. CHECKSUM covers the header, so it would be wrong.
_REPLACED = re.compile(
    rb"(SIMPLE|XTENSION|BITPIX|NAXIS[0-9]*|PCOUNT|GCOUNT|TFIELDS|EXTEND|BLOCKED|EXTNAME|CHECKSUM"
    rb"|END) *"
)
_PRINTABLE = bytes(byte if 0x20 <= byte < 0x7F else ord("?") for byte in range(256))


def joined(files: Mapping[str, bytes], texts: Mapping[str, str]) -> bytes:
    """One FITS file with all HDUs of several.

    Parameters
    ----------
    files
        FITS files, gzipped or not, by the name for the first image of each. A further HDU is named
        ``NAME_EXTNAME``, or by its number, ``NAME_2``, if it has no EXTNAME.
    texts
        Cards of the primary header, which has no data: values that are texts, by keyword.

    Raises
    ------
    BadImage
        One of them is not a FITS file; the message names it.
    """
    primary = [_card("SIMPLE", "T"), _card("BITPIX", 8), _card("NAXIS", 0), _card("EXTEND", "T")]
    parts = [_header(primary + [_text_card(key, text) for key, text in texts.items()])]
    for name, file in files.items():
        try:
            parts += _extensions(name, fits.unpack(file))
        except BadImage as error:
            raise BadImage(f"the {name.lower()} image: {error.message}") from None
    return b"".join(parts)


def _extensions(name: str, file: bytes) -> Iterator[bytes]:
    """The headers and data of a file's HDUs, as those of extensions. Raises `BadImage`."""
    hdus = fits.hdus(file)
    first = next((hdu for hdu in hdus if hdu.is_image or is_tiled(hdu)), None)
    for number, hdu in enumerate(hdus):
        if hdu.text(b"GROUPS") == "T":
            raise BadImage("random groups cannot be an extension")
        own = "" if hdu is first else "_" + (hdu.text(b"EXTNAME") or str(number))
        yield _header([*_structure(hdu), _text_card("EXTNAME", name + own), *_others(file, hdu)])
        data = file[hdu.data : hdu.stop + -hdu.stop % BLOCK]
        yield data + bytes(-len(data) % BLOCK)


def _structure(hdu: Hdu) -> Iterator[bytes]:
    """The cards that begin an extension, in the order that the standard demands."""
    yield _text_card("XTENSION", hdu.text(b"XTENSION") or "IMAGE")
    yield _card("BITPIX", hdu.text(b"BITPIX"))
    yield _card("NAXIS", len(hdu.shape))
    for axis, length in enumerate(reversed(hdu.shape), 1):
        yield _card(f"NAXIS{axis}", length)
    yield _card("PCOUNT", hdu.text(b"PCOUNT") or 0)
    yield _card("GCOUNT", hdu.text(b"GCOUNT") or 1)
    if fields := hdu.text(b"TFIELDS"):
        yield _card("TFIELDS", fields)


def _others(file: bytes, hdu: Hdu) -> Iterator[bytes]:
    """The cards of a header that stay as they are, but for characters that FITS does not have."""
    cards = (file[at : at + CARD] for at in range(hdu.start, hdu.data, CARD))
    for card in cards:
        if card.startswith(b"END     "):
            return
        if not _REPLACED.fullmatch(card[:8]):
            yield card.translate(_PRINTABLE)


def _card(key: str, value: str | int) -> bytes:
    """A card with a number or a logical value, in the fixed format."""
    return f"{key:8}= {value:>20}".ljust(CARD).encode("ascii", "replace")


def _text_card(key: str, text: str) -> bytes:
    quoted = f"'{text[:_MOST_TEXT]:8}'"
    return f"{key:8}= {quoted}".ljust(CARD).encode("ascii", "replace").translate(_PRINTABLE)


def _header(cards: list[bytes]) -> bytes:
    header = b"".join([*cards, b"END".ljust(CARD)])
    return header + b" " * (-len(header) % BLOCK)
