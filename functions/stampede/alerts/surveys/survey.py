"""The protocol of a survey: a survey is one module that defines these names.

The two framings are standards that any survey may use, so they are not part of a survey: see
`stampede.alerts.framing`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:  # the read service imports this module for the surveys' names alone
    import pyarrow as pa

FITS_MAGIC = b"SIMPLE  ="
FITS_BLOCK = 2880
PROGRAMID = "programid"
"""The field with the observing programme in alerts and history rows of a survey that has some."""


class SkyAxes(NamedTuple):
    """How an image lies on the sky: degrees to the east and to the north, per pixel along x and y.

    This is FITS's matrix PC, times CDELT, of a tangential projection. The pixel with the lowest x
    and y is the first of the file.
    """

    x_east: float
    y_east: float
    x_north: float
    y_north: float


class Moving(NamedTuple):
    """The fields that say which body of the solar system an alert shows, and where it was.

    Each is a tuple of the names that a field has had: ``a``, or ``a.b`` of a nested record. One
    that a survey does not send is empty.

    Attributes
    ----------
    designation
        As the Minor Planet Center writes it, in any form.
    phase_angle
        Sun, body, observer: degrees.
    helio_distance, topo_distance
        From the Sun and from the observer: au.
    predicted_mag
        In V.
    offset
        Distance of the detection from the predicted position: arcsec.
    most_offset
        A body that was predicted farther away is another source: arcsec.
    """

    designation: tuple[str, ...]
    phase_angle: tuple[str, ...] = ()
    helio_distance: tuple[str, ...] = ()
    topo_distance: tuple[str, ...] = ()
    predicted_mag: tuple[str, ...] = ()
    offset: tuple[str, ...] = ()
    most_offset: float = math.inf

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The names of all these fields."""
        return self[:-1]


class Band(NamedTuple):
    """How pages show a band: its colour on a light and on a dark ground, ``#rrggbb``."""

    light: str
    dark: str


class NotFits(Exception):
    """An image is not a FITS file; `begin` is its first bytes, `why` says more."""

    def __init__(self, begin: bytes, why: str = "") -> None:
        super().__init__(why or f"it begins with 0x{begin[:8].hex()}")


@runtime_checkable
class Survey(Protocol):
    """The protocol of a survey's module.

    Attributes
    ----------
    NAME
        Its name in rows, object keys and queries: small letters and digits. If the full name of a
        schema names a survey, it is the one whose name begins a word of it.
    OWN_FIELD
        Top-level field with the alert's own measurement, a record, in every version of its alert
        schema. Another survey may name its record alike.
    REQUIRED_FIELDS
        Fields that an alert needs to be one of this survey's, beside `OWN_FIELD`: ``a``, or
        ``a.b`` for a field of a nested record. Each is a tuple of the names that it has had. They
        tell the survey's alerts from those of other surveys: an alert with the fields of two is of
        the one that asks for more, if it asks for all that the other asks for.
    CUTOUT_FIELDS
        Top-level field of each kind of cutout (`columns.KINDS`).
    HISTORY_FIELDS
        Top-level fields that hold earlier points of the light curve: arrays of records.
    IMAGE_MAGIC
        The first bytes of every image in a record, as the survey sends it.
    SKY_AXES
        How its cutouts lie on the sky if their headers do not say it; None if that is not known.
    BANDS
        Every band of its points, by the name that rows have, in order of wavelength. A name has
        letters and digits alone. A band of an earlier survey keeps that survey's colours.
    MOVING
        The fields about bodies of the solar system; None if its alerts have none.
    OBJECT_PAGES
        Pages about an object elsewhere: an address by the name of the site, with ``{}`` in place of
        the object's id.
    """

    NAME: str
    OWN_FIELD: str
    REQUIRED_FIELDS: Sequence[tuple[str, ...]]
    CUTOUT_FIELDS: Mapping[str, str]
    HISTORY_FIELDS: Sequence[str]
    IMAGE_MAGIC: bytes
    SKY_AXES: SkyAxes | None
    BANDS: Mapping[str, Band]
    MOVING: Moving | None
    OBJECT_PAGES: Mapping[str, str]

    def built_in_schemas(self) -> Mapping[int, dict[str, Any]]:
        """Avro schemas by Confluent id, oldest first. All others come from the registry."""

    def head_columns(self, fields: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
        """The columns that `head` needs, ``a`` or ``a.b``.

        Parameters
        ----------
        fields
            Types of the record's fields, by name.
        own
            Types of the fields of the record in `OWN_FIELD`, by name.
        """

    def head(self, table: pa.Table) -> pa.Table:
        """One row per alert: alert_id, object_id, mjd, band, ra, dec, processed_mjd.

        Values that the alert lacks are null. An alert without id, object id or time is refused.
        A survey with observing programmes adds the column `programid`.
        """

    def cutout(self, table: pa.Table, kind: str) -> pa.Array:
        """The images of one kind as the survey sent them; null where it sent none."""

    def check_file(self, image: bytes | memoryview) -> None:
        """Raise `NotFits` or `TooManyPixels` for an image as sent that could not be served."""

    def detections(self, table: pa.Table, heads: pa.Table) -> pa.Table:
        """Every point of the light curves in these alerts, as `columns.DETECTION`.

        Parameters
        ----------
        table
            All fields of the alerts except the cutouts.
        heads
            The same alerts as `head` gave them.
        """
