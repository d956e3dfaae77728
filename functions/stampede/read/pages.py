"""HTML pages: plain HTML and CSS, no script, nothing from other hosts.

The templates are in ``templates``; jinja2 escapes every value that comes from a survey or a reader.
"""

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from starlette.responses import HTMLResponse, Response

from stampede.alerts.columns import KINDS
from stampede.images.thumbnail import SHAPE
from stampede.read import notes
from stampede.read.formats import FORMATS, with_magnitudes
from stampede.read.locations import CutoutLocation
from stampede.read.plot import Axis, light_curve_svg, mark
from stampede.read.points import BANDS
from stampede.read.ticks import date_of
from stampede.store.coverage import topic_key
from stampede.store.ledger import Entry

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
"""Content-Security-Policy of every page: no script runs, even if a value were not escaped."""

_AXES = {Axis.FLUX: "flux", Axis.MAG: "magnitudes"}


@cache
def _environment() -> "Environment":
    # Imported here, so that a start from zero does not wait for it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"date": date_of, "number": _number}
    environment.globals |= {
        "zip": zip,
        "mark": lambda kind, band: Markup(mark(kind, band, 6, 6, 4.2)),
        "style": Markup((here / "page.css").read_text()),
        "kinds": KINDS,
        "thumbnail_shape": SHAPE,
    }
    return environment


def page(template: str, **values: Any) -> str:
    """The page that a template makes of these values."""
    return _environment().get_template(template).render(incomplete=notes.incomplete(), **values)


def _number(value: float | None, form: str) -> str:
    """A number with a typographic minus sign; empty for null and NaN."""
    if value is None or not np.isfinite(value):
        return ""
    return format(value, form).replace("-", "−")


def html(text: str) -> Response:
    """The answer that holds a page."""
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    return HTMLResponse(text, headers=headers)


def problem_page(title: str, detail: str) -> str:
    """The page of an error."""
    return page("problem.html", title=title, detail=detail)


class Totals(NamedTuple):
    """The ledger of one table and topic, all partitions together."""

    topic: str
    topic_id: str | None
    table: str
    partitions: int
    received: int
    stored: int
    dead_lettered: int
    missing: int
    in_flight: int | None


def front_page(
    entries: Sequence[Entry], asked: Collection[str] = (), latest: Sequence["ShownAlert"] = ()
) -> str:
    """What is stored, and a form to find it; Kafka was `asked` about these topics."""
    by_topic: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        topic_id = entry.topic_id or ""
        by_topic.setdefault((entry.topic, topic_id, entry.table), []).append(entry)
    totals = [
        Totals(
            topic,
            topic_id or None,
            table,
            partitions=len(group),
            received=sum(entry.received for entry in group),
            stored=sum(entry.stored for entry in group),
            dead_lettered=sum(entry.dead_lettered for entry in group),
            missing=sum(entry.missing_count for entry in group),
            in_flight=sum(entry.in_flight_count for entry in group)
            if topic_key(topic, topic_id or None) in asked
            else None,
        )
        for (topic, topic_id, table), group in sorted(by_topic.items())
    ]
    missing = any(total.missing for total in totals)
    return page(
        "front.html", totals=totals, kafka_asked=bool(asked), latest=latest, missing=missing
    )


class ShownAlert(NamedTuple):
    """An alert on a page; `sent` are the kinds of cutout that the survey sent."""

    alert_id: int
    survey: str
    band: str
    mjd: float
    sent: Collection[str]
    has_thumbnail: bool
    has_packet: bool
    chosen: bool
    object_id: str

    @classmethod
    def of(
        cls,
        locations: Sequence[CutoutLocation],
        band: str | None,
        with_thumbnail: Collection[tuple[int, str]],
        with_packet: Collection[tuple[int, str]],
        chosen: int | None = None,
    ) -> "ShownAlert":
        """An alert by its cutouts; the other arguments are those of `object_page`."""
        first = locations[0]
        return cls(
            first.alert_id,
            first.survey,
            band or "none",
            first.mjd,
            sent={location.kind for location in locations if location.pack},
            has_thumbnail=(first.alert_id, first.survey) in with_thumbnail,
            has_packet=(first.alert_id, first.survey) in with_packet,
            chosen=first.alert_id == chosen,
            object_id=first.object_id,
        )


def object_page(
    object_id: str,
    detections: pa.Table,
    alerts: Sequence[Sequence[CutoutLocation]],
    axis: Axis = Axis.FLUX,
    chosen: int | None = None,
    with_thumbnail: Collection[tuple[int, str]] = (),
    with_packet: Collection[tuple[int, str]] = (),
    most: int = 12,
) -> str:
    """The page of one object.

    Parameters
    ----------
    detections
        Its light curve by time, at least one row.
    alerts
        The cutouts of each alert to show.
    chosen
        Id of the alert to highlight; None for no alert.
    with_thumbnail
        Id and survey of the alerts that have a thumbnail. The page shows the cutouts of the others.
    with_packet
        Those of the alerts whose message is stored as it came. The page links to it.
    most
        How many alerts and detections to show.
    """
    rows = with_magnitudes(detections).to_pylist()
    measured = [row for row in rows if not (row["forced"] or row["limit"])]
    bands = {row["source_id"]: row["band"] for row in measured}
    other_axis = Axis.FLUX if axis == Axis.MAG else Axis.MAG
    shown = [
        ShownAlert.of(
            locations, bands.get(locations[0].alert_id), with_thumbnail, with_packet, chosen
        )
        for locations in alerts
    ]
    return page(
        "object.html",
        object_id=object_id,
        survey=rows[0]["survey"].upper(),
        facts=_facts(detections, rows),
        bands=_bands(detections),
        point_kinds=_point_kinds(detections),
        plot=light_curve_svg(detections, axis),
        other_axis=other_axis,
        other_axis_name=_AXES[other_axis],
        alerts=shown,
        axis=axis,
        rows=measured[::-1][:most],
        measured=len(measured),
        most=most,
        linked={alert.alert_id for alert in shown},
        links=_links(object_id, rows[0]["survey"], detections),
        formats=FORMATS.values(),
    )


def _links(object_id: str, survey: str, detections: pa.Table) -> dict[str, str]:
    """Pages of other services about an object and its last position, by their names."""
    name = quote(object_id, safe="")
    links: dict[str, str] = {}
    if survey == "ztf":
        links |= {
            "ALeRCE": f"https://alerce.online/object/{name}",
            "Fink": f"https://ztf.fink-portal.org/{name}",
            "Lasair": f"https://lasair-ztf.lsst.ac.uk/objects/{name}/",
        }
    elif survey == "lsst":
        links |= {
            "Fink": f"https://lsst.fink-portal.org/{name}",
            "Lasair": f"https://lasair.lsst.ac.uk/objects/{name}/",
        }
    position = _position(detections)
    if position is None:
        return links
    ra, dec = (f"{value:.6f}" for value in position)
    signed = quote(f"{position[1]:+.6f}")
    return links | {
        "SIMBAD": "https://simbad.cds.unistra.fr/simbad/sim-coo"
        f"?Coord={ra}d{signed}d&Radius=5&Radius.unit=arcsec",
        "NED": "https://ned.ipac.caltech.edu/conesearch?search_type=Near%20Position%20Search"
        f"&in_csys=Equatorial&in_equinox=J2000&ra={ra}&dec={signed}&radius=0.1",
        "TNS": f"https://www.wis-tns.org/search?ra={ra}&decl={dec}&radius=5&coords_unit=arcsec",
        "Legacy Survey": "https://www.legacysurvey.org/viewer"
        f"?ra={ra}&dec={dec}&layer=ls-dr10&zoom=16&mark={ra},{dec}",
    }


def _position(detections: pa.Table) -> tuple[float, float] | None:
    """The last known position, ra and dec in degrees."""
    ra, dec = (
        detections[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in ("ra", "dec")
    )
    known = np.flatnonzero(np.isfinite(ra) & np.isfinite(dec))
    return (float(ra[known[-1]]), float(dec[known[-1]])) if len(known) else None


def _facts(detections: pa.Table, rows: list[dict[str, Any]]) -> dict[str, str]:
    forced = sum(row["forced"] for row in rows)
    limits = sum(row["limit"] for row in rows)
    facts = {"detections": f"{len(rows) - forced - limits:,}"}
    if forced:
        facts["forced points"] = f"{forced:,}"
    if limits:
        facts["limits"] = f"{limits:,}"
    if position := _position(detections):
        facts["last position (ICRS)"] = "{:.6f}° {:+.6f}°".format(*position)
    facts["first seen"] = date_of(rows[0]["mjd"])
    facts["last seen"] = date_of(rows[-1]["mjd"])
    return facts


def _bands(detections: pa.Table) -> list[str]:
    """The bands of a light curve in order of wavelength, then ``none``."""
    bands = set(detections["band"].to_pylist())
    return [band for band in BANDS if band in bands] + (["none"] if None in bands else [])


def _point_kinds(detections: pa.Table) -> dict[str, str]:
    """The kinds of points and their names for the legend; empty if all are detections."""
    kinds = {"detection": "detection"}
    if any(detections["forced"].to_pylist()):
        kinds["forced"] = "forced photometry"
    if any(detections["limit"].to_pylist()):
        kinds["limit"] = "5σ limit"
    return kinds if len(kinds) > 1 else {}
