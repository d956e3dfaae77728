"""Pages for people: plain HTML and CSS, no script, nothing from elsewhere.

Whatever comes from a survey or a reader passes through `html.escape`.
"""

from collections.abc import Collection, Sequence
from functools import cache
from html import escape
from importlib.resources import files

import numpy as np
import pyarrow as pa

from stampede.alerts.columns import KINDS
from stampede.images.thumbnail import SHAPE
from stampede.read.formats import FORMATS, with_magnitudes
from stampede.read.lookup import CutoutLocation
from stampede.read.plot import Axis, date_of, light_curve_svg
from stampede.store.ledger import Entry

POLICY = "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; form-action 'self'"
"""Content-Security-Policy of every page: even a slip in escaping runs no script."""
ROWS = 50
"""Most rows of the table of detections; all of them are a download away."""

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='4' fill='%231f5fbf'/%3E"
    "%3Ccircle cx='9.5' cy='6.5' r='2.5' fill='white'/%3E%3C/svg%3E"
)


@cache
def _style() -> str:
    return files("stampede.read").joinpath("page.css").read_text()


def _page(title: str, body: str, search: bool = True) -> str:
    header = (
        f'<header class="site"><a class="home" href="/">Stampede</a>{_search()}</header>'
        if search
        else ""
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="{_ICON}"><style>{_style()}</style></head><body>'
        f"{header}<main>{body}</main><footer>Stampede keeps every alert. "
        '<a href="/v1/ledger">Ledger</a> · <a href="/openapi.json">API</a> · '
        '<a href="/metrics">Metrics</a></footer></body></html>'
    )


def _search() -> str:
    return (
        '<form action="/find" role="search"><input name="id" aria-label="object or alert id" '
        'placeholder="object or alert id" maxlength="64" required><button>Find</button></form>'
    )


def problem_page(title: str, detail: str) -> str:
    """A page that says what went wrong."""
    return _page(title, f'<h1>{escape(title)}</h1><p class="soft">{escape(detail)}</p>')


def front_page(entries: Sequence[Entry]) -> str:
    """What is stored, and a way to it."""
    sums: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        numbers = (
            1,
            entry.high - entry.low,
            entry.stored,
            entry.dead_lettered,
            entry.missing_count,
        )
        known = sums.get((entry.topic, entry.table), [0] * len(numbers))
        sums[entry.topic, entry.table] = [a + b for a, b in zip(known, numbers, strict=True)]
    rows = "".join(
        f'<tr><td class="text">{escape(topic)}</td><td class="text">{escape(table)}</td>'
        + "".join(f"<td>{number:,}</td>" for number in numbers[:-1])
        + f'<td class="{"bad" if numbers[-1] else "good"}">{numbers[-1]:,}</td></tr>'
        for (topic, table), numbers in sorted(sums.items())
    )
    heads = ("partitions", "alerts received", "stored", "dead letters", "missing")
    table = (
        '<div class="scroll"><table><thead><tr><th class="text">topic</th>'
        f'<th class="text">table</th>{"".join(f"<th>{head}</th>" for head in heads)}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        if rows
        else '<p class="soft">Nothing yet: no alert has been stored.</p>'
    )
    examples = "\n".join(
        (
            "curl -OJ --compressed $URL/v1/alerts/<b>ALERT</b>/cutouts/science",
            "curl $URL/v1/objects/<b>OBJECT</b>/lightcurve?format=csv",
            "curl --data-binary @ids.txt $URL/v1/cutouts | tar x",
        )
    )
    return _page(
        "Stampede",
        '<div class="welcome"><h1>Stampede</h1><p>Cutouts and light curves of every '
        f"alert, by id.</p>{_search()}</div>"
        '<section><div class="head"><h2>What is stored</h2><span class="right">'
        f'<a href="/v1/ledger">the whole ledger</a></span></div>{table}</section>'
        '<section><div class="head"><h2>From a notebook or a shell</h2><span class="right">'
        f'<a href="/openapi.json">the API</a></span></div><pre><code>{examples}</code></pre>'
        "</section>",
        search=False,
    )


def object_page(
    object_id: str,
    detections: pa.Table,
    alerts: Sequence[Sequence[CutoutLocation]],
    axis: Axis = Axis.FLUX,
    chosen: int | None = None,
    drawn: Collection[tuple[int, str]] = (),
) -> str:
    """The page of one object.

    Parameters
    ----------
    detections
        Its light curve in time, at least one row.
    alerts
        The cutouts of its alerts to show, each in the order of `KINDS`.
    chosen
        The alert that the reader asked for.
    drawn
        Id and survey of the alerts that have a thumbnail; of others the cutouts are shown.
    """
    name = escape(object_id)
    survey = escape(detections["survey"][0].as_py().upper())
    rows = with_magnitudes(detections).to_pylist()
    by_alert = {row["source_id"]: row for row in rows if not (row["forced"] or row["limit"])}
    pictures = "".join(_alert(places, by_alert, chosen, drawn) for places in alerts)
    curve = f"/v1/objects/{name}/lightcurve"
    downloads = "".join(
        f'<a href="{curve}?format={format.name}" download>{label}</a>'
        for format, label in zip(
            FORMATS.values(), ("JSON", "CSV", "Parquet", "Arrow", "VOTable"), strict=True
        )
    )
    other = Axis.FLUX if axis == Axis.MAG else Axis.MAG
    switch = f'<a href="/objects/{name}?axis={other}">show {_AXES[other]}</a>'
    table = _table([row for row in reversed(rows) if not (row["forced"] or row["limit"])])
    return _page(
        f"{object_id} · Stampede",
        f'<h1>{name}<span class="chip">{survey}</span></h1>{_facts(detections, rows)}'
        f'<section><div class="head"><h2>Light curve</h2>{_legend(detections)}'
        f'<span class="right">{switch}</span></div>'
        f'<div class="scroll">{light_curve_svg(detections, axis)}</div></section>'
        '<section><div class="head"><h2>Cutouts</h2><span class="soft">latest first</span></div>'
        + (
            f'<div class="alerts">{pictures}</div>'
            if pictures
            else '<p class="soft">No cutouts of this object are stored.</p>'
        )
        + f'</section><section><div class="head"><h2>Detections</h2>'
        f'<span class="soft">latest {ROWS} at most</span></div>{table}</section>'
        f'<section><div class="head"><h2>Download the light curve</h2></div>'
        f'<div class="downloads">{downloads}</div></section>',
    )


_AXES = {Axis.FLUX: "flux", Axis.MAG: "magnitudes"}


def _facts(detections: pa.Table, rows: list[dict]) -> str:
    ra, dec = (detections[axis].to_numpy(zero_copy_only=False) for axis in ("ra", "dec"))
    ra, dec = (values.astype(np.float64) for values in (ra, dec))
    where = np.isfinite(ra) & np.isfinite(dec)
    forced = sum(row["forced"] for row in rows)
    limits = sum(row["limit"] for row in rows)
    facts = {"detections": f"{len(rows) - forced - limits:,}"}
    if forced:
        facts["forced points"] = f"{forced:,}"
    if limits:
        facts["limits"] = f"{limits:,}"
    if where.any():
        at = int(np.flatnonzero(where)[-1])
        facts["last position (ICRS)"] = f"{ra[at]:.6f}° {dec[at]:+.6f}°"
    facts["first seen"], facts["last seen"] = (date_of(rows[i]["mjd"]) for i in (0, -1))
    items = (f"<div><dt>{dt}</dt><dd>{escape(dd)}</dd></div>" for dt, dd in facts.items())
    return f'<dl class="facts">{"".join(items)}</dl>'


def _legend(detections: pa.Table) -> str:
    there = set(detections["band"].to_pylist())
    bands = [band for band in "ugrizy" if band in there] + (["none"] if None in there else [])
    mark = {
        "detection": '<circle cx="6" cy="6" r="4"/>',
        "forced": '<circle cx="6" cy="6" r="3.2"/>',
        "limit": '<path d="M1.5 3h9l-4.5 7z"/>',
    }
    kinds = {
        "detection": "detection",
        "forced": "forced photometry" if any(detections["forced"].to_pylist()) else "",
        "limit": "5σ limit" if any(detections["limit"].to_pylist()) else "",
    }
    items = [
        f'<span><svg class="detection band-{band}" viewBox="0 0 12 12"><g class="detection">'
        f"{mark['detection']}</g></svg>{band}</span>"
        for band in bands
    ]
    items += [
        f'<span><svg viewBox="0 0 12 12"><g class="{kind}">{mark[kind]}</g></svg>{text}</span>'
        for kind, text in kinds.items()
        if text and sum(map(bool, kinds.values())) > 1
    ]
    return f'<div class="legend">{"".join(items)}</div>'


def _alert(
    places: Sequence[CutoutLocation],
    by_alert: dict[int, dict],
    chosen: int | None,
    drawn: Collection[tuple[int, str]],
) -> str:
    one = places[0]
    row = by_alert.get(one.alert_id, {})
    band = row.get("band") or "none"
    only = f"survey={escape(one.survey)}"
    show = _thumbnail if (one.alert_id, one.survey) in drawn else _figures
    return (
        f'<div class="alert{" chosen" if one.alert_id == chosen else ""}" '
        f'id="alert-{one.alert_id}"><div class="what"><span><span class="dot band-{escape(band)}">'
        f"</span>{escape(band)}</span><span>{date_of(one.mjd)}</span>"
        f'<a class="meta" href="/v1/alerts/{one.alert_id}?{only}">{one.alert_id}</a></div>'
        f"{show(places, only)}</div>"
    )


def _thumbnail(places: Sequence[CutoutLocation], only: str) -> str:
    """An alert's cutouts as one picture, and below each a link to the FITS file."""
    base = f"/v1/alerts/{places[0].alert_id}"
    sent = {place.kind for place in places if place.pack}
    captions = "".join(
        f'<figcaption><a href="{base}/cutouts/{kind}?{only}" title="FITS">{kind}</a></figcaption>'
        if kind in sent
        else f"<figcaption>{kind}: not sent</figcaption>"
        for kind in KINDS
    )
    source = f"{base}/thumbnail?{only}"
    return (
        f'<a href="{source}"><img class="thumbnail" loading="lazy" width="{SHAPE[1]}" '
        f'height="{SHAPE[0]}" src="{source}" alt="{", ".join(KINDS)}"></a>'
        f'<div class="triplet">{captions}</div>'
    )


def _figures(places: Sequence[CutoutLocation], only: str) -> str:
    """An alert's cutouts as a picture each."""
    sent = {place.kind for place in places if place.pack}
    base = f"/v1/alerts/{places[0].alert_id}/cutouts"
    figures = "".join(
        f'<figure><a href="{base}/{kind}?{only}" title="FITS"><img loading="lazy" '
        f'src="{base}/{kind}?format=png&amp;{only}" alt="{kind}"></a>'
        f"<figcaption>{kind}</figcaption></figure>"
        if kind in sent
        else f'<figure><div class="absent">not sent</div><figcaption>{kind}</figcaption></figure>'
        for kind in KINDS
    )
    return f'<div class="triplet">{figures}</div>'


def _table(rows: Sequence[dict]) -> str:
    def number(value: float | None, form: str) -> str:
        known = value is not None and np.isfinite(value)
        return format(value, form).replace("-", "−") if known else ""

    lines = []
    for row in rows[:ROWS]:
        band = escape(row["band"] or "none")
        lines.append(
            f"<tr><td>{row['mjd']:.5f}</td><td class=text>{date_of(row['mjd'])}</td>"
            f'<td class="text"><span class="dot band-{band}"></span>{band}</td>'
            f"<td>{number(row['flux'], ',.0f')}</td><td>{number(row['flux_err'], ',.0f')}</td>"
            f"<td>{number(row['mag'], '.2f')}</td><td>{number(row['mag_err'], '.2f')}</td>"
            f"<td>{number(row['reliability'], '.2f')}</td>"
            f"<td class=text>{row['source_id']}</td></tr>"
        )
    heads = (
        "<th>MJD (TAI)</th><th class=text>date</th><th class=text>band</th><th>flux (nJy)</th>"
        "<th>± (nJy)</th><th>AB mag</th><th>±</th><th>reliability</th><th class=text>id</th>"
    )
    return (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
