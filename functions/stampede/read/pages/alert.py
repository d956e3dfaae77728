"""Route of the page of an alert: its cutouts with all HDUs, its fields, its neighbours in time."""

from collections.abc import Iterator
from functools import lru_cache
from html import escape
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from stampede.errors import NotFound, StampedeError
from stampede.images import fits
from stampede.images.hdu import Hdu
from stampede.images.orientation import pixel_scale, sky_axes, turn_of, turned_size
from stampede.images.stretch import Stretch
from stampede.images.tiles import is_tiled, plane_of
from stampede.lookup import response_warnings
from stampede.lookup.alert_fields import described
from stampede.lookup.lookup import Lookup
from stampede.lookup.object_alerts import stored_alerts
from stampede.lookup.packs.locations import CutoutLocation
from stampede.lookup.points import PointFilter
from stampede.lookup.stored_records import Documentation
from stampede.read.api.cutouts import Limits, locations
from stampede.read.formats.light_curves import shortest
from stampede.read.pages import page as pages
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.runtime.counts import counted

BAR = 5
"""Length of the scale bar: arcseconds."""
MANY = 4
"""Flags that are false, from which on one line names them all."""


class ShownHdu(NamedTuple):
    """An HDU of a cutout's file; `shape` is columns x rows, empty if there is no image."""

    number: int
    name: str
    shape: str


class ShownCutout(NamedTuple):
    """A cutout on the page of its alert.

    Attributes
    ----------
    bar
        Length of `BAR` in percent of the picture's longer side; None if its file does not say how
        it lies on the sky.
    fault
        Why there is no picture.
    """

    kind: str
    bytes: int = 0
    hdus: tuple[ShownHdu, ...] = ()
    bar: float | None = None
    fault: str = ""


class Section(NamedTuple):
    """A record among an alert's fields: how many it has of its own, and their HTML."""

    name: str
    total: int
    rows: str


async def alert_page(request: Request) -> Response:
    """`/alerts/{id}`: one alert."""
    service, query = service_of(request), request.query_params
    stretch = parameters.choice(query, "stretch", Stretch, Stretch.ASINH)
    limits = parameters.choice(query, "limits", Limits, Limits.OWN)
    found = await locations(request)
    text = await service.run(_page, service.lookup, found, stretch, limits)
    return pages.html(text, pages.WITH_SCRIPT)


def _page(lookup: Lookup, found: list[CutoutLocation], stretch: Stretch, limits: Limits) -> str:
    alert = found[0]
    record = lookup.record(alert.alert_id, alert.survey, described)
    return pages.page(
        "alert_page.html",
        alert=alert,
        cutouts=[_shown(lookup, location) for location in found],
        sections=[*_sections("alert", record.fields, record.documentation)] if record else [],
        has_packet=record is not None,
        neighbours=_neighbours(lookup, alert),
        stretch=stretch,
        stretches=[*Stretch],
        limits=limits,
        all_limits=[*Limits],
        bar_length=BAR,
    )


def _shown(lookup: Lookup, location: CutoutLocation) -> ShownCutout:
    if location.pack is None:
        return ShownCutout(location.kind, fault="not sent")
    try:
        whole = fits.unpack(lookup.images.fits(location))
        image, first = fits.first_image(whole)
        hdus = fits.hdus(whole)
    except StampedeError as error:
        response_warnings.may_lack(f"the {location.kind} image cannot be read")
        return ShownCutout(location.kind, location.length, fault=error.message)
    axes = sky_axes(first, location.survey)
    bar = None
    if axes is not None:
        longer = max(turned_size(image.shape, turn_of(axes)))
        bar = 100 * BAR / pixel_scale(axes) / longer
    named = tuple(_named(number, hdu) for number, hdu in enumerate(hdus))
    return ShownCutout(location.kind, location.length, named, bar)


def _named(number: int, hdu: Hdu) -> ShownHdu:
    shape = ""
    if hdu.is_image or is_tiled(hdu):
        shape = "{1} x {0}".format(*(plane_of(hdu) if is_tiled(hdu) else hdu.plane))
    return ShownHdu(number, hdu.text(b"EXTNAME") or ("PRIMARY" if number == 0 else "HDU"), shape)


def _sections(
    name: str, record: dict[str, Any], documentation: Documentation, path: tuple[str, ...] = ()
) -> Iterator[Section]:
    """A record's own fields, then those of the records in it; of lists their length."""
    inner = {key: value for key, value in record.items() if isinstance(value, dict)}
    own = {key: value for key, value in record.items() if key not in inner}
    texts = _texts(own)
    unset = [key for key, value in own.items() if value is False]
    if len(unset) < MANY:
        unset = []
    docs = {key: documentation.get((*path, key), "") for key in own}
    # A template that loops over so many fields takes three times as long.
    rows = [
        f"<div>{_term(key, docs[key])}<dd>{escape(text)}</dd></div>\n"
        for key, text in texts.items()
        if not unset or own[key] is not False
    ]
    if unset:
        names = ", ".join(_name(key, docs[key]) for key in unset)
        rows.append(f"<div><dt>false</dt><dd>{names}</dd></div>\n")
    if own:
        yield Section(name, len(own), "".join(rows))
    for key, value in inner.items():
        yield from _sections(key, value, documentation, (*path, key))


@lru_cache(4000)  # schemas have up to 500 fields
def _term(name: str, doc: str) -> str:
    """A field's name as HTML; its documentation for the pointer, and for who cannot see it."""
    if not doc:
        return f"<dt>{escape(name)}</dt>"
    name, doc = escape(name), escape(doc)
    return f'<dt title="{doc}">{name}<span class="unseen">: {doc}</span></dt>'


@lru_cache(1000)
def _name(name: str, doc: str) -> str:
    """As `_term`, within a line."""
    title = f' title="{escape(doc)}"' if doc else ""
    unseen = f'<span class="unseen">: {escape(doc)}</span>' if doc else ""
    return f"<span{title}>{escape(name)}{unseen}</span>"


def _texts(record: dict[str, Any]) -> dict[str, str]:
    """The values of fields as text: numbers with no more digits than their types have.

    A 32-bit float is 0.1, not 0.10000000149011612; one of 64 bits is never that number.
    """
    texts = {key: _text(value) for key, value in record.items()}
    names = [key for key, value in record.items() if isinstance(value, float) and isfinite(value)]
    wide = np.array([record[key] for key in names], np.float64)
    with np.errstate(over="ignore"):
        single = wide.astype(np.float32)
    plain = np.where(single == wide, shortest(single), wide).tolist()
    return texts | dict(zip(names, map(str, plain), strict=True))


def _text(value: Any) -> str:
    if value is None or isinstance(value, float):
        return ""
    return f"{counted(value, 'entry')}" if isinstance(value, list) else str(value)


def _neighbours(lookup: Lookup, alert: CutoutLocation) -> list[CutoutLocation | None]:
    """The stored alerts of the object before this one and after it; None if there is none."""
    try:
        rows = PointFilter().apply(lookup.light_curves.of_object(alert.object_id))
    except NotFound:
        return [None, None]
    alerts = [one[0] for one in stored_alerts(lookup, alert.object_id, rows, alert.alert_id)][::-1]
    own = [one for one in alerts if one.survey == alert.survey]
    at = [one.alert_id for one in own].index(alert.alert_id)
    return [own[at - 1] if at else None, own[at + 1] if at + 1 < len(own) else None]
