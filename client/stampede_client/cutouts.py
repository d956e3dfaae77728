"""The three images of an alert."""

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from io import BytesIO
from typing import Any

from astropy.io import fits
from astropy.nddata import CCDData
from astropy.units import Unit
from astropy.wcs import WCS

from stampede_client.errors import BadInput, NotFound

KINDS = ("science", "template", "difference")


class Cutouts:
    """The cutouts of one alert: FITS files as the survey sent them, and the server's PNGs.

    In a notebook the object shows itself.

    Parameters
    ----------
    alert_id
        diaSourceId or candid.
    files, pictures
        By kind the bytes of the FITS file and of a PNG; a kind that the survey did not send is
        not there.
    """

    def __init__(
        self, alert_id: str, files: Mapping[str, bytes], pictures: Mapping[str, bytes]
    ) -> None:
        self.alert_id = alert_id
        self._files, self._pictures = dict(files), dict(pictures)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that the survey sent."""
        return tuple(kind for kind in KINDS if kind in self._files)

    def bytes(self, kind: str) -> bytes:
        """The FITS file of one kind, as the survey made it. Raises `NotFound`, `BadInput`."""
        if kind not in KINDS:
            raise BadInput(f"{kind!r} is no kind of cutout; use one of {', '.join(KINDS)}")
        if kind not in self._files:
            has = ", ".join(self.kinds) or "none"
            raise NotFound(
                f"the survey sent no {kind} cutout with alert {self.alert_id}; use {has}"
            )
        return self._files[kind]

    def hdus(self, kind: str) -> fits.HDUList:
        """All HDUs of one kind, in memory."""
        # ZTF's first card has its value in the wrong column.
        return fits.open(BytesIO(self.bytes(kind)), ignore_missing_simple=True)

    def ccd(self, kind: str) -> CCDData:
        """The first image of one kind, with its header, and a WCS if the header has one.

        The unit is the header's BUNIT, without one ``adu``.
        """
        with self.hdus(kind) as hdus:
            image = next(hdu for hdu in hdus if hdu.header.get("NAXIS") == 2)
            header, pixels = image.header.copy(), image.data.copy()
        wcs = WCS(header) if "CTYPE1" in header else None
        unit = Unit(header.get("BUNIT", "adu"), parse_strict="silent")
        return CCDData(pixels, unit=unit, meta=header, wcs=wcs)

    def _repr_html_(self) -> str:
        figures = (
            f'<figure style="display:inline-block;margin:4px">{self._image(kind)}'
            f"<figcaption>{kind}</figcaption></figure>"
            for kind in KINDS
        )
        return f"<div><p>alert {escape(self.alert_id)}</p>{''.join(figures)}</div>"

    def _image(self, kind: str) -> str:
        if kind not in self._pictures:
            return "<span>not sent</span>"
        data = b64encode(self._pictures[kind]).decode()
        return f'<img alt="{kind}" src="data:image/png;base64,{data}">'

    def _repr_png_(self) -> Any:
        return self._pictures.get("science")

    def __repr__(self) -> str:
        return f"<Cutouts of alert {self.alert_id}: {', '.join(self.kinds) or 'none'}>"
