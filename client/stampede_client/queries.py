"""The queries, as plans: which requests to send, and what their responses mean."""

import operator
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from functools import partial, reduce
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from astropy.table import Table
from astropy.time import Time

from stampede_client.cutouts import KINDS, Cutouts
from stampede_client.errors import BadInput, MissingWarning, NotFound, UnexpectedResponse
from stampede_client.exchange import Plan, Request, ask
from stampede_client.light_curve import LightCurve
from stampede_client.responses import (
    Tar,
    arrow_rows,
    arrow_stream,
    json_object,
    missing_of,
    parquet_rows,
    tar_of,
    understood,
)
from stampede_client.sky import Position, Radius, cone_of, table_of

Moment: TypeAlias = Time | float | int | str
"""A time, MJD (TAI) if it is a float, or the id of an alert."""
MomentOfMany: TypeAlias = Time | float | Literal["alert"]
"""A time, MJD (TAI) if it is a float; or with each alert, whose ids are given."""
PacketFormat: TypeAlias = Literal["avro", "ocf", "json", "fits"]
"""As the survey sent it; an Avro container with its schema; JSON; all images in one FITS file."""
PNG = {"format": "png", "size": "200"}
"""A cutout in a notebook: its longer side has 200 pixels."""

WITH_ALERT = "alert"
MOST_POSITIONS = 50_000
"""Positions in one request; the server takes twice as many."""
MOST_NAMED = 10
"""Ids in a warning."""
MOST_RECENT = 100
MOST_DESIGNATION = 64
"""Characters."""
_RECENT = pa.schema(
    [
        *((name, pa.string()) for name in ("alert_id", "survey", "object_id")),
        pa.field("mjd", pa.float64(), True, {"unit": "d"}),
        ("band", pa.string()),
    ]
)
_ALERT = re.compile(r"[1-9][0-9]{0,18}")
_OBJECT = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
# What Rubin's names in the form of the IAU have before the id.
_NAME_OF_ALERT = re.compile(r"^LSST-AP-DS-(?=[0-9])", re.IGNORECASE)
_NAME_OF_OBJECT = re.compile(r"^LSST-AP-DO-(?=[0-9])", re.IGNORECASE)


def alert(
    alert_id: int | str, survey: str | None = None, fields: Collection[str] = ()
) -> Plan[dict[str, Any]]:
    """What is stored of an alert, with these of its fields; all if there are none."""
    chosen = {"fields": ",".join(fields)} if fields else {}
    found: dict[str, Any] = yield from ask(_json(_alert(alert_id), {**_of(survey), **chosen}))
    if found.get("alert_id") != str(alert_id):
        raise UnexpectedResponse(f"the answer is not about alert {alert_id}; check the URL")
    return found


def cutouts(alert_id: int | str, survey: str | None = None) -> Plan[Cutouts]:
    """All cutouts of an alert. Raises `NotFound` if there is no such alert."""
    files, pictures = {}, {}
    for kind in KINDS:
        path = f"{_alert(alert_id)}/cutouts/{kind}"
        try:
            files[kind] = yield from ask(Request(path, _of(survey)))
        except NotFound as error:
            if error.problem != "no-such-cutout":
                raise
            continue
        pictures[kind] = yield from ask(Request(path, {**_of(survey), **PNG}))
    return Cutouts(str(alert_id), files, pictures)


def packet(
    alert_id: int | str, survey: str | None = None, format: PacketFormat | None = None
) -> Plan[bytes]:
    """The message as the survey sent it, or in another format."""
    query = {**_of(survey), **({"format": format} if format else {})}
    found: bytes = yield from ask(Request(f"{_alert(alert_id)}/packet", query))
    return found


def schema(alert_id: int | str, survey: str | None = None) -> Plan[dict[str, Any]]:
    """The Avro schema of an alert."""
    found: dict[str, Any] = yield from ask(_json(f"{_alert(alert_id)}/schema", _of(survey)))
    return found


def picture(
    alert_id: int | str, kind: str = "science", size: int | None = None, survey: str | None = None
) -> Plan[bytes]:
    """A PNG of one cutout. Raises `BadInput`."""
    if kind not in KINDS:
        raise BadInput(f"{kind!r:.60} is no kind of cutout; use one of {', '.join(KINDS)}")
    query = {"format": "png", **_of(survey), **({} if size is None else {"size": str(size)})}
    found: bytes = yield from ask(Request(f"{_alert(alert_id)}/cutouts/{kind}", query))
    return found


def guide() -> Plan[str]:
    """What the server has, as text."""
    found: bytes = yield from ask(Request("/llms.txt"))
    return found.decode("utf-8", "replace")


def thumbnail(alert_id: int | str, survey: str | None = None) -> Plan[bytes]:
    """A PNG of the three cutouts side by side."""
    found: bytes = yield from ask(Request(f"{_alert(alert_id)}/thumbnail", _of(survey)))
    return found


def light_curve(
    object_id: int | str,
    magnitudes: bool = False,
    asof: Moment | None = None,
    **chosen: Any,
) -> Plan[LightCurve]:
    """The light curve of an object, or what was known of it at a time; of its points the chosen.

    `chosen` are the arguments of `points_query`.
    """
    query = {"format": "arrow", **({"magnitudes": "true"} if magnitudes else {})}
    query |= points_query(**chosen)
    if asof is not None:
        query["asof"] = moment(asof)
    name = checked_object(object_id)
    rows = yield from ask(Request(f"/v1/objects/{name}/lightcurve", query, read=arrow_rows))
    if curves := _curves(rows, [name]):
        return curves[0]
    if any(value is not None for value in chosen.values()):
        with understood():
            return LightCurve.from_arrow(rows)  # no point is of these bands, times and kinds
    raise UnexpectedResponse(f"the answer has no point of {name}; ask again")


def points_query(
    band: str | Collection[str] | None = None,
    start: Time | float | None = None,
    end: Time | float | None = None,
    forced: bool | None = None,
    survey: str | None = None,
) -> dict[str, str]:
    """The parameters that choose points. Raises `BadInput`."""
    query = {} if band is None else {"band": band if isinstance(band, str) else ",".join(band)}
    query |= {} if survey is None else {"survey": survey}
    for name, time in (("start", start), ("end", end)):
        if time is not None:
            query[name] = moment(time if isinstance(time, Time) else float(time))
    return query if forced is None else query | {"forced": "true" if forced else "false"}


def moving(
    designation: int | str, magnitudes: bool = False, survey: str | None = None, **chosen: Any
) -> Plan[Table]:
    """What alerts show of a body of the solar system; of its observations the chosen.

    `chosen` are ``band``, ``start`` and ``end`` of `points_query`.
    """
    name = checked_designation(designation)
    query = {"format": "arrow", **_of(survey), **({"magnitudes": "true"} if magnitudes else {})}
    query |= points_query(**chosen)
    rows = yield from ask(Request(f"/v1/moving/{quote(name, safe='')}", query, read=arrow_rows))
    with understood():
        table = table_of(rows)
        table.meta["designation"] = rows["designation"][0].as_py() if rows.num_rows else name
        return table


def cone(position: Position, more: Sequence[Any], radius: Radius | None) -> Plan[Table]:
    """The objects around a position, the nearest first, or around each of several."""
    asked = cone_of(position, more, radius)
    degrees, arcsec = asked.degrees, repr(asked.radius)
    if asked.place.isscalar:
        ra, dec = map(repr, degrees[0].tolist())
        query = {"ra": ra, "dec": dec, "radius": arcsec, "format": "parquet"}
        rows = yield from ask(Request("/v1/cone", query, read=parquet_rows))
        with understood():
            return table_of(rows)
    found = []
    for start in range(0, len(degrees), MOST_POSITIONS):
        body = {"positions": degrees[start : start + MOST_POSITIONS].tolist()}
        query = {"radius": arcsec, "format": "arrow"}
        rows = yield from ask(Request("/v1/cone", query, body, arrow_stream))
        with understood():
            numbers = pc.add(rows["position"], start)
            found.append(rows.set_column(0, rows.schema.field("position"), numbers))
    with understood():
        matched = pa.concat_tables(found)
        return table_of(matched.sort_by([("position", "ascending"), ("distance", "ascending")]))


def recent(limit: int = 12) -> Plan[Table]:
    """The latest alerts, the latest first. Raises `BadInput`."""
    if not 1 <= limit <= MOST_RECENT:
        raise BadInput(f"limit is {limit}; give a number from 1 to {MOST_RECENT}")
    found = yield from ask(_json("/v1/alerts", {"limit": str(limit)}))
    with understood():
        return table_of(pa.Table.from_pylist([*map(dict, found["alerts"])], _RECENT))


def cutout_files(ids: list[str]) -> Plan[Tar]:
    """All cutouts of these alerts."""
    read = partial(tar_of, asked=ids)
    found: Tar = yield from ask(Request("/v1/cutouts", {"format": "tar"}, {"ids": ids}, read))
    return found


def light_curves(ids: list[str], asof: MomentOfMany | None = None) -> Plan[list[LightCurve]]:
    """The light curves of these objects, by id, without those that the server does not have.

    Or what was known of them at a time, or, if `asof` is ``alert``, with each of these alerts.
    """
    query = {"format": "arrow"} | ({} if asof is None else {"asof": _moment_of_many(asof)})
    request = Request("/v1/lightcurves", query, {"ids": ids}, arrow_stream)
    rows = yield from ask(request)
    curves = _curves(rows, ids, "alert_id" if _of_alerts(asof) else "object_id")
    with understood():
        missing = missing_of(rows)
    if missing:
        named = ", ".join(missing[:MOST_NAMED])
        more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
        text = f"{len(missing):,} of {len(ids):,} ids have no light curve here: {named}{more}"
        warnings.warn(text, MissingWarning, stacklevel=5)
    return curves


def ids_asked(ids: Iterable[int | str], asof: MomentOfMany | None = None) -> list[str]:
    """The texts of the ids that `light_curves` takes with this `asof`, each once.

    Raises `BadInput`.
    """
    checked = checked_alert if _of_alerts(asof) else checked_object
    return list(dict.fromkeys(map(checked, ids)))


def ledger() -> Plan[dict[str, Any]]:
    """The completeness ledger."""
    found: dict[str, Any] = yield from ask(_json("/v1/ledger", {}))
    return found


def moment(asof: Moment) -> str:
    """The text of a time, MJD TAI, or of an alert id. Raises `BadInput`."""
    if isinstance(asof, Time):
        if not asof.isscalar:
            raise BadInput("asof is an array of times; give one")
        return repr(float(asof.tai.mjd))
    return repr(float(asof)) if isinstance(asof, float) else checked_alert(asof)


def _of_alerts(asof: MomentOfMany | None) -> bool:
    return isinstance(asof, str) and asof == WITH_ALERT


def _moment_of_many(asof: MomentOfMany) -> str:
    """The text of a time, or ``alert``. Raises `BadInput`."""
    if _of_alerts(asof):
        return WITH_ALERT
    if isinstance(asof, Time | float):
        return moment(asof)
    raise BadInput(f"asof is {asof!r:.60}; give a Time, an MJD as float, or {WITH_ALERT!r}")


def checked_alert(alert_id: int | str) -> str:
    """The text of an alert id. Raises `BadInput`."""
    if not _ALERT.fullmatch(text := _NAME_OF_ALERT.sub("", _digits(alert_id))):
        raise BadInput(
            f"{alert_id!r:.60} is no alert id; give a diaSourceId or candid as int or str"
        )
    return text


def checked_object(object_id: int | str) -> str:
    """The text of an object id. Raises `BadInput`."""
    if not _OBJECT.fullmatch(text := _NAME_OF_OBJECT.sub("", _digits(object_id))):
        raise BadInput(
            f"{object_id!r:.60} is no object id; give a diaObjectId, ssObjectId or objectId"
        )
    return text


def checked_designation(designation: int | str) -> str:
    """The text of a designation. Raises `BadInput`."""
    text = _digits(designation).strip()
    if not text or len(text) > MOST_DESIGNATION or not text.isprintable():
        raise BadInput(
            f"{designation!r:.60} is no designation; give a number as 45685, or text as 2011 UW158"
        )
    return text


def _digits(given: Any) -> str:
    """The text of an id that is text or an integer, also NumPy's; "" for a float: it is rounded."""
    if isinstance(given, str):
        return str(given)
    try:
        return "" if isinstance(given, bool) else str(operator.index(given))
    except TypeError:
        return ""


def _curves(rows: pa.Table, asked: Collection[str], name: str = "object_id") -> list[LightCurve]:
    """The light curves in rows, by the ids in a column.

    Raises `UnexpectedResponse` if one was not asked for.
    """
    with understood():
        # Both surveys may have an alert of one id.
        keys = rows.group_by([name, "survey"]).aggregate([]).sort_by([(name, "ascending")])
        if others := {*map(str, keys[name].to_pylist())} - set(asked):
            raise UnexpectedResponse(f"nobody asked for {min(others)!r:.80}, which the answer has")
        return [LightCurve.from_arrow(_equal(rows, key)) for key in keys.to_pylist()]


def _equal(rows: pa.Table, values: dict[str, Any]) -> pa.Table:
    """The rows with these values in columns."""
    masks = (pc.equal(rows[name], value) for name, value in values.items())
    return rows.filter(reduce(pc.and_, masks))


def _alert(alert_id: int | str) -> str:
    return f"/v1/alerts/{checked_alert(alert_id)}"


def _of(survey: str | None) -> dict[str, str]:
    return {} if survey is None else {"survey": survey}


def _json(path: str, query: dict[str, str]) -> Request:
    return Request(path, query, read=json_object)
