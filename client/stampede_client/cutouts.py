"""The three images of an alert."""

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from io import BytesIO
from typing import Any

import numpy as np
from astropy.io import fits
from astropy.nddata import CCDData, InverseVariance, StdDevUncertainty, VarianceUncertainty
from astropy.units import Unit
from astropy.wcs import WCS

from stampede_client.errors import BadInput, NotFound

KINDS = ("science", "template", "difference")


UNCERTAINTIES = {
    each.__name__: each for each in (VarianceUncertainty, StdDevUncertainty, InverseVariance)
}
"""By their names in the card UTYPE, as astropy writes it."""


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
        """The first image of one kind, with its header, and what the file has beside it.

        The unit is the header's BUNIT, without one ``adu``. The uncertainty is the extension
        UNCERT, the PSF is PSFIMAGE, and the mask is true where a pixel is NaN. The WCS is the
        header's; Rubin's names no projection, so it is read as gnomonic (TAN), from which no
        projection differs by a thousandth of a pixel in 30 pixels.
        """
        with self.hdus(kind) as hdus:
            image = next(hdu for hdu in hdus if hdu.header.get("NAXIS") == 2)
            header, pixels = image.header.copy(), image.data.copy()
            beside = {hdu.name: hdu for hdu in hdus if hdu is not image and hdu.data is not None}
            error = _uncertainty(beside.get("UNCERT"))
            psf = beside["PSFIMAGE"].data.copy() if "PSFIMAGE" in beside else None
        blank = np.isnan(pixels) if pixels.dtype.kind == "f" else np.zeros(pixels.shape, bool)
        return CCDData(
            pixels,
            uncertainty=error,
            mask=blank if blank.any() else None,
            unit=Unit(header.get("BUNIT", "adu"), parse_strict="silent"),
            meta=header,
            wcs=_wcs(header),
            psf=psf,
        )

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


def _uncertainty(hdu: Any) -> Any:
    """The uncertainty in an extension; None without one, or if it does not say of what kind."""
    kind = UNCERTAINTIES.get(hdu.header.get("UTYPE", "")) if hdu is not None else None
    return kind(hdu.data.copy()) if kind else None


def _wcs(header: fits.Header) -> WCS | None:
    """The WCS of a header; None if it has none."""
    if "CTYPE1" not in header and {"CRVAL1", "CRVAL2", "PC1_1"} <= set(header):
        header = header.copy()
        header["CTYPE1"], header["CTYPE2"] = "RA---TAN", "DEC--TAN"
    return WCS(header) if "CTYPE1" in header else None
