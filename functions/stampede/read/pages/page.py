"""HTML pages: nothing from other hosts, no inline style or script. Few have a script, a file.

The templates are in ``templates``; jinja2 escapes every value that comes from a survey or a reader.
"""

import re
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from functools import cache, lru_cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from isal import igzip
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

from stampede import __version__
from stampede.alerts.columns import KINDS
from stampede.images.thumbnail import SHAPE
from stampede.lookup import response_warnings
from stampede.lookup.packs.locations import CutoutLocation
from stampede.read.plots.marks import mark
from stampede.read.plots.ticks import date_of, day_of, time_of
from stampede.read.web.conditional import preferred
from stampede.read.web.static_files import address

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
"""Content-Security-Policy of a page: no script runs, even if a value were not escaped."""
WITH_SCRIPT = f"{POLICY}; script-src 'self'"
"""That of a page with a script: only files of this server run, nothing that is in the page."""

origin: ContextVar[str] = ContextVar("origin", default="")
"""Scheme and host by which the client of this request reaches the server; empty if unknown."""

_SEE = re.compile(r"(.*): see (/nights(?:/[-0-9]+)?|/proofs|/help#programs)", re.DOTALL)


@cache
def _environment() -> "Environment":
    # Imported here, so that a start from zero does not wait for it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    @lru_cache(64)  # a table has 50 rows, of a few bands and kinds
    def symbol(kind: str, band: str) -> Markup:
        shape = Markup(mark(kind, band, 6, 6, 4.2))
        return Markup(
            '<svg class="symbol band-{}" viewBox="0 0 12 12" aria-hidden="true">'
            '<g class="{}">{}</g></svg>'
        ).format(band, kind, shape)

    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"date": date_of, "day": day_of, "time": time_of, "number": _number}
    environment.globals |= {
        "zip": zip,
        "mark": lambda kind, band: Markup(mark(kind, band, 6, 6, 4.2)),
        "symbol": symbol,
        "static": address,
        "kinds": KINDS,
        "thumbnail_shape": SHAPE,
    }
    return environment


def page(template: str, **values: Any) -> str:
    """The page that a template makes of these values."""
    common = {
        "incomplete": response_warnings.incomplete(),
        "origin": origin.get(),
        "version": __version__,
    }
    return _environment().get_template(template).render(common | values)


def _number(value: float | None, form: str) -> str:
    """A number with a typographic minus sign; empty for null and NaN."""
    if value is None or not isfinite(value):
        return ""
    return format(value, form).replace("-", "−")


class PageResponse(HTMLResponse):
    """A page, gzipped for a client that accepts that.

    Not by a middleware: all other responses have their own encodings, or are streams, and none of
    them is to pay for it.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        accepted = Headers(scope=scope).get("accept-encoding", "")
        if preferred(accepted, ("gzip", "identity")) == "gzip":
            self.body = igzip.compress(self.body, mtime=0)
            self.headers["Content-Encoding"] = "gzip"
            self.headers["Content-Length"] = str(len(self.body))
        self.headers.add_vary_header("Accept-Encoding")
        await super().__call__(scope, receive, send)


def html(text: str, policy: str = POLICY) -> PageResponse:
    """The response that holds a page."""
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}
    return PageResponse(text, headers=headers)


def problem_page(title: str, detail: str) -> str:
    """The page of an error; where the detail says to see another page, it has a link."""
    found = _SEE.fullmatch(detail)
    detail, link = found.groups() if found else (detail, "")
    return page("problem.html", title=title, detail=detail, link=link)


class Part(NamedTuple):
    """Which page of how many, and how many items they hold together."""

    number: int
    last: int
    total: int


def part_of(items: Sequence[Any] | np.ndarray, number: int, size: int) -> tuple[Part, Any]:
    """The page of that number, the last one if there are fewer, and its items."""
    last = max(1, -(-len(items) // size))
    number = min(number, last)
    return Part(number, last, len(items)), items[(number - 1) * size : number * size]


class ShownAlert(NamedTuple):
    """An alert on a page; `sent` are the kinds of cutout that the survey sent."""

    alert_id: int
    survey: str
    band: str
    mjd: float
    sent: Collection[str]
    has_thumbnail: bool
    chosen: bool
    object_id: str

    @classmethod
    def of(
        cls,
        locations: Sequence[CutoutLocation],
        band: str | None,
        with_thumbnail: Collection[tuple[int, str]],
        chosen: int | None = None,
    ) -> "ShownAlert":
        """An alert by its cutouts.

        Parameters
        ----------
        with_thumbnail
            Id and survey of the alerts that have a thumbnail. Of others a page shows the cutouts.
        chosen
            Id of the alert to highlight; None for no alert.
        """
        first = locations[0]
        return cls(
            first.alert_id,
            first.survey,
            band or "none",
            first.mjd,
            sent={location.kind for location in locations if location.pack},
            has_thumbnail=(first.alert_id, first.survey) in with_thumbnail,
            chosen=first.alert_id == chosen,
            object_id=first.object_id,
        )


def sexagesimal(ra: float, dec: float) -> str:
    """A position in degrees as hours and degrees: ``00:03:15.40 +16:08:44.0``."""
    seconds = round(ra * 240 * 100) % (24 * 3600 * 100)
    arcsec = round(abs(dec) * 3600 * 10)
    hours, minutes = divmod(seconds // 100, 3600), divmod(arcsec // 10, 3600)
    return (
        f"{hours[0]:02}:{hours[1] // 60:02}:{hours[1] % 60:02}.{seconds % 100:02} "
        f"{'-' if dec < 0 else '+'}{minutes[0]:02}:{minutes[1] // 60:02}:{minutes[1] % 60:02}"
        f".{arcsec % 10}"
    )


def position_of(detections: pa.Table) -> tuple[float, float] | None:
    """The last known position, ra and dec in degrees."""
    ra, dec = (
        detections[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in ("ra", "dec")
    )
    known = np.flatnonzero(np.isfinite(ra) & np.isfinite(dec))
    return (float(ra[known[-1]]), float(dec[known[-1]])) if len(known) else None
