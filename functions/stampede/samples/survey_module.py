"""The text of a survey's module, from guesses of what its fields mean."""

from collections.abc import Iterable
from string import Template

from stampede.alerts import surveys
from stampede.samples.guesses import Guesses

PALETTE = (
    *(("#0c71ff", "#5aa9ff"), ("#2f9e4d", "#4cd07d"), ("#c61c00", "#ff6a4d")),
    *(("#ba7f00", "#f2c230"), ("#d6248a", "#ff7cc4"), ("#5d0000", "#d39a86")),
)
"""Colours of bands that no survey has yet, on a light and on a dark ground."""

MODULE = Template('''\
"""$upper's alerts in the columns of the one model.

`stampede new survey` guessed this from samples: see $report. Check it against
the survey's documentation, name that here as the source, and delete this paragraph.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from stampede.alerts.arrays import Rows, concat, explode, head_of, images_of, nanojansky, table_of
from stampede.alerts.columns import DETECTION
from stampede.alerts.surveys import ztf
from stampede.alerts.surveys.survey import FITS_MAGIC, Band, Moving, SkyAxes
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.timescale import TAI_MINUS_UTC

NAME: str = "$name"
OWN_FIELD: str = "$own"
REQUIRED_FIELDS: Sequence[tuple[str, ...]] = (
$required)
CUTOUT_FIELDS: Mapping[str, str] = {
$cutouts}
HISTORY_FIELDS: Sequence[str] = ($histories)
FORCED: Sequence[str] = ($forced)  # histories of forced photometry
IMAGE_MAGIC: bytes = $magic
SKY_AXES: SkyAxes | None = None
BANDS: Mapping[str, Band] = {$bands}
MOVING: Moving | None = None
OBJECT_PAGES: Mapping[str, str] = {}
HEAD = ($inner)
$band_of_id
built_in_schemas = ztf.built_in_schemas  # none: each message carries its own
check_file = ztf.check_file  # FITS, gzipped or not


def head_columns(fields: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """The columns that `head` needs."""
    top = [name for name in ($top) if name in fields]
    return [*top, *(f"{OWN_FIELD}.{name}" for name in HEAD if name in own)]


def head(table: pa.Table) -> pa.Table:
    """One row per alert, as `Survey.head`."""
    rows, own = Rows.of_table(table), Rows.of_table(table, f"{OWN_FIELD}.")
    ids = $alert_id, $object_id
    return head_of(ids, own, _mjd(own), _band(own)$places)


def cutout(table: pa.Table, kind: str) -> pa.Array:
    """The FITS files of one kind as sent; null where there is none."""
    return images_of(table, CUTOUT_FIELDS[kind]$stamps)


def detections(table: pa.Table, heads: pa.Table) -> pa.Table:
    """Every point of the light curves in these alerts, as `DETECTION`: their own, then earlier."""
    own = Rows.of_struct(table[OWN_FIELD].chunk(0), f"{OWN_FIELD}.")
    # An alert's own point is a second later than its copies in later histories, which say less.
    later = {"source_id": heads["alert_id"], "processed_mjd": pc.add(_mjd(own), 1 / 86400)}
    parts = [_points(own, heads, False, later)]
    for name in HISTORY_FIELDS:
        if name in table.column_names:
            parents, rows = explode(table[name].chunk(0), name)
            parts.append(_points(rows, heads.take(pa.array(parents)), name in FORCED, {}))
    return concat(DETECTION, parts)


def _points(rows: Rows, heads: pa.Table, forced: bool, more: Mapping[str, Any]) -> pa.Table:
    flux, flux_err = _flux(rows)
    depth = nanojansky($depth_column)
    limit = pc.and_(flux.is_null(), pc.and_(depth.is_valid(), not forced))
    mjd = _mjd(rows)
    columns = {
        "object_id": heads["object_id"],
        "survey": NAME,
        "forced": forced,
        "limit": limit,
        "source_id": _ids(rows, mjd),
        "mjd": mjd,
        "band": _band(rows),
        "ra": rows.get("$ra", type=pa.float64()),
        "dec": rows.get("$dec", type=pa.float64()),
        "flux": flux,
        "flux_err": pc.if_else(limit, pc.divide(depth, 5), flux_err),
$score_column        "withdrawn": False,
        # Forced photometry is made again for each alert, a copy of a detection is not.
        "processed_mjd": heads["processed_mjd"] if forced else mjd,
$limit_column        **more,
    }
    return table_of(DETECTION, columns, rows.length)


def _ids(rows: Rows, mjd: pa.Array) -> pa.Array:
    """The id of each point; of one without any its time in milliseconds."""
    milliseconds = pc.round(pc.multiply(mjd, 86_400_000)).cast(pa.int64())
    return pc.coalesce(rows.get("$point_id", type=pa.int64()), milliseconds)


def _mjd(rows: Rows) -> pa.Array:
    """MJD TAI; `$time` is $scale."""
    return pc.add(rows.get("$time", type=pa.float64()), $offset)


def _band(rows: Rows) -> pa.Array:
$band

def _flux(rows: Rows) -> tuple[pa.Array, pa.Array]:
    """The flux on the difference image and its error, nJy."""
$flux$sign
''')

TEXT_BAND = """\
    return rows.get("$band", type=pa.string())
"""
NUMBER_BAND = """\
    numbers = pa.array([*BAND_OF_ID], pa.int64())
    found = pc.index_in(rows.get("$band", type=pa.int64()), numbers)
    return pa.array([*BAND_OF_ID.values()]).take(found)
"""
NO_BAND = """\
    return pa.nulls(rows.length, pa.string())  # if the survey has one band, write it here
"""
MAGNITUDE = """\
    flux = nanojansky($value)
    relative = pc.multiply($error, math.log(10) / 2.5)
    return $signed, pc.multiply(flux, relative)
"""
FLUX = """\
    flux = pc.multiply($value, $factor)
    return $signed, pc.multiply($error, $factor)
"""
SIGN = '''\


def _sign(rows: Rows) -> pa.Array:
    """1 or -1."""
    positive = rows.columns.get("$sign", pa.nulls(rows.length, pa.string())).cast(pa.string())
    return pc.if_else(pc.is_in(positive, pa.array(["t", "1", "true"])), 1, -1)
'''
OFFSETS = {
    "JD UTC": "-2400000.5 + TAI_MINUS_UTC",
    "JD TAI": "-2400000.5",
    "MJD UTC": "TAI_MINUS_UTC",
    "MJD TAI": "0.0",
}


def module_text(name: str, report: str, found: Guesses) -> str:
    """The module of a survey.

    Parameters
    ----------
    report
        The name of the file that says what was guessed.
    """
    own = [found.time, found.band, found.ra, found.dec, found.brightness.value]
    required = [found.object_id, found.alert_id, *(f"{found.own}.{each}" for each in own if each)]
    places = {"top": _items(_top(found)), "inner": _items(_inner(found))}
    point_ids = [history.id for history in found.histories if history.id]
    text = MODULE.substitute(
        found._asdict() | places,
        name=name,
        upper=name.upper(),
        report=report,
        required="".join(f'    ("{path}",),\n' for path in required),
        cutouts="".join(
            f'    "{kind}": "{path.partition(".")[0]}",\n' for kind, path in found.cutouts.items()
        ),
        stamps="".join(f', "{name}"' for name in _stamps(found)),
        places=_places(found),
        histories=_items(history.field for history in found.histories),
        forced=_items(history.field for history in found.histories if history.forced),
        magic="ztf.IMAGE_MAGIC" if found.gzipped else "FITS_MAGIC",
        bands=_bands(found.bands),
        depth_column=_get(found.depth, "float64"),
        score_column=_line("reliability", found.score),
        limit_column=_line("limiting_mag", found.depth),
        band_of_id=f"BAND_OF_ID = {found.band_of_id!r}\n".replace("'", '"')
        if found.band_of_id
        else "",
        alert_id=_column(found.alert_id, "int64"),
        object_id=_column(found.object_id, "string" if found.id_is_text else "int64")
        + ("" if found.id_is_text else ".cast(pa.string())"),
        point_id=point_ids[0] if point_ids else found.alert_id.rpartition(".")[2],
        offset=OFFSETS[found.scale],
        band=_band(found),
        flux=_flux(found),
        sign=Template(SIGN).substitute(sign=found.brightness.sign) if found.brightness.sign else "",
    )
    return _without_unused(text).rstrip() + "\n"


def _top(found: Guesses) -> list[str]:
    return [path for path in (found.alert_id, found.object_id) if "." not in path]


def _inner(found: Guesses) -> list[str]:
    """The fields of the own record that `head` needs."""
    ids = [path.partition(".")[2] for path in (found.alert_id, found.object_id) if "." in path]
    return [each for each in (*ids, found.time, found.band, found.ra, found.dec) if each]


def _stamps(found: Guesses) -> list[str]:
    """The fields of records that hold the images; none if the images are fields of the alert."""
    return sorted({path.partition(".")[2] for path in found.cutouts.values() if "." in path})


def _places(found: Guesses) -> str:
    """The argument that names the position's fields, unless they have the usual names."""
    names = found.ra, found.dec
    return "" if names == ("ra", "dec") else ", (" + _items(names) + ")"


def _items(names: Iterable[str]) -> str:
    """The inside of a tuple of texts."""
    listed = [f'"{name}"' for name in names]
    return ", ".join(listed) + ("," if len(listed) == 1 else "")


def _column(path: str, kind: str) -> str:
    """The expression for a field of the alert, or of its own record."""
    inner = path.partition(".")[2]
    return f'{"own" if inner else "rows"}.get("{inner or path}", type=pa.{kind}())'


def _bands(names: list[str]) -> str:
    known = surveys.bands()
    lines = []
    for number, name in enumerate(names):
        light, dark = known.get(name, PALETTE[number % len(PALETTE)])
        lines.append(f'    "{name}": Band("{light}", "{dark}"),\n')
    return "\n" + "".join(lines) if lines else ""


def _get(name: str, kind: str) -> str:
    """The expression for a field of `rows`; nulls for one that there is not."""
    return (
        f'rows.get("{name}", type=pa.{kind}())' if name else f"pa.nulls(rows.length, pa.{kind}())"
    )


def _line(column: str, name: str) -> str:
    """The line of a column of `DETECTION`; none without a field."""
    return f'        "{column}": {_get(name, "float32")},\n' if name else ""


def _band(found: Guesses) -> str:
    if not found.band:
        return NO_BAND
    return Template(NUMBER_BAND if found.band_of_id else TEXT_BAND).substitute(band=found.band)


def _flux(found: Guesses) -> str:
    own = found.brightness
    signed = "pc.multiply(flux, _sign(rows))" if own.sign else "flux"
    form = MAGNITUDE if own.is_magnitude else FLUX
    return Template(form).substitute(
        value=_get(own.value, "float64"),
        error=_get(own.error, "float64"),
        factor=own.factor,
        signed=signed,
    )


def _without_unused(text: str) -> str:
    """The module without imports that its guesses do not need."""
    body = text.partition("\nNAME: str")[2]
    for used, before, after in (
        ("math.", "import math\n", ""),
        ("FITS_MAGIC", "import FITS_MAGIC, ", "import "),
        ("TAI_MINUS_UTC", "from stampede.runtime.timescale import TAI_MINUS_UTC\n", ""),
    ):
        text = text if used in body else text.replace(before, after, 1)
    return text
