"""What the fields of a new survey mean, guessed from samples: by names, types, values and units.

A guess is a start: each has its reason, and `doubts` names what somebody must look up.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stampede.errors import SetupError
from stampede.runtime.decompression import is_gzip
from stampede.samples.brightness import Brightness, guess_brightness
from stampede.samples.fields import Field, fields_of, is_image
from stampede.samples.sample import Sample

ALERT_ID = ("candid", "alertid", "diasourceid", "sourceid", "detectionid", "id", "pid")
OBJECT_ID = ("objectid", "objid", "diaobjectid", "objectname", "name")
TIME = ("jd", "mjd", "midpointmjdtai", "midpointtai", "mjdtai", "obsjd", "obsmjd")
RA, DEC = ("ra", "radeg", "rightascension"), ("dec", "decl", "decdeg", "declination")
BAND = ("band", "filter", "filtername", "filt", "fid", "filterid")
SCORE = ("drb", "rb", "reliability", "score")
DEPTH = ("diffmaglim", "maglim", "limitingmag")
KINDS = {
    "science": ("sci", "new", "obs"),
    "template": ("temp", "ref", "old"),
    "difference": ("diff", "sub"),
}
FORCED = ("fp", "forced")
BAND_NAME = re.compile("[A-Za-z][A-Za-z0-9]{0,7}")
JD, MJD = (2_433_282.0, 2_500_000.0), (33_282.0, 100_000.0)


class Row(NamedTuple):
    """The fields of a record that is measured: of the alert's own, or of one in a history."""

    fields: dict[str, Field]

    def find(self, names: Sequence[str], *kinds: str) -> str:
        """The first field of one of these names, in this order; empty if there is none.

        Parameters
        ----------
        names
            In small letters without underscores.
        kinds
            Types of Avro that the field may have; any if none is given.
        """
        plain = {re.sub(r"[\W_]", "", name.lower()): name for name in self.fields}
        for name in names:
            found = plain.get(name, "")
            if found and (not kinds or {*self.fields[found].kind.split(" or ")} & {*kinds}):
                return found
        return ""


class History(NamedTuple):
    """A history: its field, whether it is forced photometry, and the id that its rows have."""

    field: str
    forced: bool
    id: str


class Guesses(NamedTuple):
    """What the fields mean.

    Attributes
    ----------
    own
        The record with the alert's own measurement. `time`, `ra`, `dec`, `band`, `score` and
        `depth` are fields of it; empty if it has none.
    alert_id, object_id
        Fields ``a`` or ``a.b``.
    id_is_text
        Whether the object id is text.
    scale
        What `time` is: ``JD UTC`` and so on.
    band_of_id
        Names of bands by number; empty if `band` is text.
    bands
        Names of all bands.
    cutouts
        Field of each kind: ``a``, or ``a.b``.
    doubts
        What somebody must look up.
    """

    own: str
    alert_id: str
    object_id: str
    id_is_text: bool
    time: str
    scale: str
    ra: str
    dec: str
    band: str
    band_of_id: dict[int, str]
    bands: list[str]
    brightness: Brightness
    score: str
    depth: str
    cutouts: dict[str, str]
    gzipped: bool
    histories: list[History]
    doubts: list[str]


def guess(samples: Sequence[Sample]) -> Guesses:
    """What the fields of these samples mean.

    Raises `SetupError` if they have no measurement, no id, no object id or no time.
    """
    fields = fields_of(samples[0])
    top = Row({field.path: field for field in fields if "." not in field.path})
    own, row = _own(fields, top)
    doubts: list[str] = []
    values = [sample.record[own] for sample in samples]
    object_id, id_field = _object_id(top, row, own)
    time = row.find(TIME, "double", "float")
    band = row.find(BAND)
    histories = _histories(fields, top, time)
    rows = [*values, *_history_rows(samples, histories)]
    numbers = _band_of_id(row, band, rows, doubts)
    cutouts = _cutouts(fields, doubts)
    found = Guesses(
        own,
        _alert_id(samples, top, row, own, doubts),
        object_id,
        "string" in id_field.kind,
        time,
        _scale(row, time, values, doubts),
        row.find(RA, "double", "float"),
        row.find(DEC, "double", "float"),
        band,
        numbers,
        _bands(band, numbers, rows),
        guess_brightness({n: field.doc for n, field in row.fields.items()}, rows, doubts),
        row.find(SCORE, "double", "float"),
        row.find(DEPTH, "double", "float"),
        cutouts,
        any(is_gzip(field.value) for field in fields if is_image(field.value)),
        histories,
        doubts,
    )
    return found


def _own(fields: Iterable[Field], top: Row) -> tuple[str, Row]:
    """The record with a time and a position. Raises `SetupError`."""
    for name, field in top.fields.items():
        row = Row(
            {
                each.path.removeprefix(f"{name}."): each
                for each in fields
                if each.path.startswith(f"{name}.") and "." not in each.path[len(name) + 1 :]
            }
        )
        if isinstance(field.value, dict) and row.find(TIME) and row.find(RA) and row.find(DEC):
            return name, row
    raise SetupError(
        "the alerts have no record with a time (such as jd, mjd) and a position (ra, dec): "
        "`stampede inspect` shows what they have; write the module by hand"
    )


def _alert_id(samples: Sequence[Sample], top: Row, row: Row, own: str, doubts: list[str]) -> str:
    """A field with another integer in each sample. Raises `SetupError`."""
    for path, place in (("", top), (f"{own}.", row)):
        for name in ALERT_ID:
            found = place.find([name], "int", "long")
            if not found:
                continue
            records = [sample.record[own] if path else sample.record for sample in samples]
            ids = [record[found] for record in records]
            if len({*ids}) == len(ids) and all(isinstance(n, int) and n > 0 for n in ids):
                if name in ("id", "pid") or len(ids) == 1:
                    doubts.append(f"whether `{path}{found}` is another number in each alert")
                return path + found
    raise SetupError(
        "the alerts have no integer that tells one from another (such as candid): an alert id "
        "is a positive number of 63 bits; write `head` by hand"
    )


def _object_id(top: Row, row: Row, own: str) -> tuple[str, Field]:
    """The field of the object's id. Raises `SetupError`."""
    for path, place in (("", top), (f"{own}.", row)):
        if found := place.find(OBJECT_ID, "string", "int", "long"):
            return path + found, place.fields[found]
    raise SetupError("the alerts have no field of an object's id (such as objectId)")


def _scale(row: Row, time: str, values: Sequence[Mapping[str, Any]], doubts: list[str]) -> str:
    """What the time is, by its values, its name and its documentation. Raises `SetupError`."""
    field = row.fields[time] if time else Field("", "", "", None)
    for name, (least, most) in (("JD", JD), ("MJD", MJD)):
        if time and all(least <= value[time] <= most for value in values):
            if "tai" in f"{time} {field.doc}".lower():
                return f"{name} TAI"
            if "utc" not in f"{time} {field.doc}".lower():
                doubts.append(f"the time scale of `{time}`: UTC is assumed, not TAI or TDB")
            doubts.append(f"whether `{time}` is the start or the middle of the exposure")
            return f"{name} UTC"
    raise SetupError(f"`{time or 'no field'}` is no time: neither a JD nor an MJD after 1950")


def _band_of_id(
    row: Row, band: str, rows: Iterable[Mapping[str, Any]], doubts: list[str]
) -> dict[int, str]:
    """Names of bands by number, by the documentation of the field; else made of the numbers."""
    if not band:
        doubts.append("the band: no field tells it, so rows have none; if it is one, write it")
        return {}
    if "string" in row.fields[band].kind:
        doubts.append("which bands there are beside those of the samples: `BANDS` names all")
        return {}
    found = re.findall(r"(\d+)\s*[=:]\s*([A-Za-z][A-Za-z0-9]{0,7})", row.fields[band].doc)
    doubts.append(
        f"which band each number of `{band}` is: "
        + ("the schema's documentation says it, and may be wrong" if found else "nothing says it")
    )
    if not found:
        return {
            n: f"f{n}" for n in sorted({row[band] for row in rows if row.get(band) is not None})
        }
    return {int(number): name for number, name in found if name.lower() != "dark"}


def _bands(band: str, numbers: dict[int, str], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of bands in the samples, or those that numbers stand for."""
    if numbers:
        return list(dict.fromkeys(numbers.values()))
    sent = {row.get(band) for row in rows if band}
    return sorted(each for each in sent if isinstance(each, str) and BAND_NAME.fullmatch(each))


def _histories(fields: Iterable[Field], top: Row, time: str) -> list[History]:
    """The arrays of records that have a time."""
    found = []
    for name, field in top.fields.items():
        inner = {f.path.removeprefix(f"{name}[]."): f for f in fields if "[]." in f.path}
        own = Row({path: each for path, each in inner.items() if each.path == f"{name}[].{path}"})
        if isinstance(field.value, list | None) and time in own.fields:
            forced = any(word in name.lower() for word in FORCED)
            found.append(History(name, forced, own.find(ALERT_ID[:-2], "int", "long")))
    return found


def _history_rows(
    samples: Iterable[Sample], histories: Iterable[History]
) -> Iterable[Mapping[str, Any]]:
    for sample in samples:
        for history in histories:
            yield from sample.record[history.field] or ()


def _cutouts(fields: Iterable[Field], doubts: list[str]) -> dict[str, str]:
    """The field of each kind of cutout; of a kind that is not sent, a name that no field has."""
    images = [field.path for field in fields if is_image(field.value)]
    found: dict[str, str] = {}
    for kind, words in KINDS.items():
        named = [path for path in images if any(word in path.lower() for word in words)]
        if named:
            found[kind] = named[0]
        else:
            found[kind] = f"cutout_{kind}"
            doubts.append(f"the {kind} cutout: no image of the samples has such a name")
    doubts.append("how cutouts lie on the sky (`SKY_AXES`), if their headers do not say it")
    return found
