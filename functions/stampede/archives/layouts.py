"""Layouts of files of light curves: which column says what, and in which unit.

ZTF's data releases: https://irsa.ipac.caltech.edu/data/ZTF/docs/ (Masci et al. 2019), a row for
each object of one field, filter and readout channel, with lists of its measurements.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Self

from stampede.archives.time_scales import SCALES
from stampede.errors import SetupError


class Part(StrEnum):
    """What a column of a file says of a measurement."""

    OBJECT_ID = "object_id"
    TIME = "time"
    BAND = "band"
    RA = "ra"
    DEC = "dec"
    MAG = "mag"
    FLUX = "flux"
    DIFFERENCE = "difference"
    ERROR = "error"
    SOURCE_ID = "source_id"
    DETECTOR = "detector"
    QUALITY = "quality"


MEASURES = (Part.MAG, Part.FLUX, Part.DIFFERENCE)
"""A file has one of them: a magnitude or a flux of the object in all, or a difference flux."""
NEEDED = (Part.OBJECT_ID, Part.TIME, Part.BAND, Part.RA, Part.DEC)
JD_MINUS_MJD = 2400000.5
DAYS = {"mjd": 0.0, "jd": JD_MINUS_MJD}
UNITS = {"njy": 1.0, "ujy": 1e3, "mjy": 1e6, "jy": 1e9}
"""Nanojansky in each unit of a flux."""
FORMATS = ("ztf-dr", "columns")
_ZTF_DR = ("objectid", "filterid", "objra", "objdec", "hmjd", "mag", "magerr")
_ZTF_BANDS = {"1": "g", "2": "r", "3": "i"}
_IRSA_BANDS = {"zg": "g", "zr": "r", "zi": "i"}
_KNOWN: Mapping[Part, Mapping[str, str]] = {
    Part.OBJECT_ID: dict.fromkeys(("object_id", "objectid", "oid", "objid", "diaobjectid"), ""),
    Part.TIME: {
        "mjd": "mjd-utc",
        "hmjd": "mjd-utc",
        "midpointmjdtai": "mjd-tai",
        "expmidptmjd": "mjd-tai",
        "jd": "jd-utc",
        "hjd": "jd-utc",
        "bjd": "jd-tdb",
    },
    Part.BAND: dict.fromkeys(("band", "filter", "filtercode"), ""),
    Part.RA: dict.fromkeys(("ra", "objra", "coord_ra", "raj2000"), ""),
    Part.DEC: dict.fromkeys(("dec", "decl", "objdec", "coord_dec", "dej2000"), ""),
    Part.MAG: dict.fromkeys(("mag", "magnitude", "psfmag"), ""),
    Part.FLUX: {"flux": "njy", "total_flux": "njy", "psfflux": "njy"},
    Part.DIFFERENCE: {},
    Part.ERROR: {},
    Part.SOURCE_ID: {},
    Part.DETECTOR: {"rcid": ""},
    Part.QUALITY: {"catflags": ""},
}
"""Names of columns that need not be told, in small letters, the likeliest first; their units."""
_ERRORS = ("magerr", "mag_err", "e_mag", "sigmapsf", "fluxerr", "flux_err", "psffluxerr", "error")


class Asked(NamedTuple):
    """What the operator says of files.

    Attributes
    ----------
    format
        One of `FORMATS`; None to recognise it.
    columns
        Columns, and their units or "".
    bands
        Names of bands by their names in the files.
    """

    format: str | None
    columns: Mapping[Part, tuple[str, str]]
    bands: Mapping[str, str]

    @classmethod
    def of(cls, format: str | None, columns: Sequence[str], bands: Sequence[str]) -> Self:
        """What options say: ``PART=COLUMN[:UNIT]`` and ``NAME=BAND``. Raises `SetupError`."""
        if format is not None and format not in FORMATS:
            raise SetupError(f"--format is one of {', '.join(FORMATS)}, not {format!r}")
        if format == "ztf-dr" and columns:
            raise SetupError("--column is for files in the format columns")
        told = {}
        for text in columns:
            name, _, column = text.partition("=")
            if name not in [*Part] or not column:
                raise SetupError(
                    f"--column {text}: write PART=COLUMN, where PART is one of {', '.join(Part)}"
                )
            told[Part(name)] = _with_unit(Part(name), column)
        if len(measures := [part for part in MEASURES if part in told]) > 1:
            raise SetupError(f"--column names {' and '.join(measures)}: a point has one of them")
        pairs = [text.partition("=") for text in bands]
        if wrong := [text for text, (name, _, band) in zip(bands, pairs, strict=True)
                     if not name or not band]:  # fmt: skip
            raise SetupError(f"--band {wrong[0]}: write NAME=BAND, for example 1=g")
        return cls(format, told, {name: band for name, _, band in pairs})


class Layout(NamedTuple):
    """How files of one kind say their measurements.

    Attributes
    ----------
    format
        One of `FORMATS`.
    columns
        Name of the column of each part; of a field in a record or in a list of records ``a.b``.
    epoch, scale
        The time is MJD + `epoch`, in this time scale (`time_scales.SCALES`).
    nanojansky
        Nanojansky in the unit of a flux.
    bands
        Names of bands by their names in the file.
    """

    format: str
    columns: Mapping[Part, str]
    epoch: float
    scale: str
    nanojansky: float
    bands: Mapping[str, str]

    @property
    def measure(self) -> Part:
        """Which of `MEASURES` the file has."""
        return next(part for part in MEASURES if part in self.columns)

    @property
    def described(self) -> str:
        """What is taken for what, as a person reads it."""
        days = "JD" if self.epoch else "MJD"
        notes = {Part.TIME: f" ({days}, {self.scale.upper()})"}
        if self.measure is not Part.MAG:
            unit = next(name for name, value in UNITS.items() if value == self.nanojansky)
            notes[self.measure] = f" ({unit[:-2].replace('u', 'µ')}Jy)"
        taken = (f"{part} {name}{notes.get(part, '')}" for part, name in self.columns.items())
        return f"format {self.format}: {', '.join(taken)}"

    @classmethod
    def of(cls, names: Sequence[str], asked: Asked) -> Self:
        """The layout of a file with columns of these names. Raises `SetupError`."""
        by_last = {name.rpartition(".")[2]: name for name in reversed(names)}
        is_ztf = {*_ZTF_DR} <= by_last.keys()
        if asked.format == "ztf-dr" and not is_ztf:
            lacking = ", ".join(name for name in _ZTF_DR if name not in by_last)
            raise SetupError(f"it is not in the layout of ZTF's data releases: it lacks {lacking}")
        if asked.format != "columns" and is_ztf and not asked.columns:
            asked = asked._replace(
                columns={Part.BAND: (by_last["filterid"], "")}, bands=_ZTF_BANDS | {**asked.bands}
            )
            format = "ztf-dr"
        else:
            format = "columns"
        found = _columns(names, asked)
        days, _, scale = found[Part.TIME][1].partition("-")
        measure = next(part for part in MEASURES if part in found)
        return cls(
            format,
            {part: found[part][0] for part in Part if part in found},
            DAYS[days],
            scale,
            UNITS[found[measure][1] or "njy"],
            _IRSA_BANDS | {**asked.bands},
        )


def _columns(names: Sequence[str], asked: Asked) -> dict[Part, tuple[str, str]]:
    """The columns of a file by part, and their units. Raises `SetupError`."""
    for part, (column, _) in asked.columns.items():
        if column not in names:
            raise SetupError(f"it has no column {column} for {part}; it has {_listed(names)}")
    by_last = {name.rpartition(".")[2].lower(): name for name in reversed(names)}
    found = dict(asked.columns)
    told = any(part in found for part in MEASURES)
    for part, known in _KNOWN.items():
        if part in found or (told and part in MEASURES):
            continue
        for name, unit in known.items():
            if name in by_last:
                found[part] = by_last[name], unit
                break
    measures = [part for part in MEASURES if part in found]
    if len(measures) > 1:
        both = " and ".join(found[part][0] for part in measures)
        raise SetupError(
            f"it has {both}: say which to take, for example --column "
            f"{measures[0]}={found[measures[0]][0]}"
        )
    for part in NEEDED if measures else (Part.MAG,):
        if part not in found:
            raise SetupError(
                f"it has no column that is known for {part}: name it with "
                f"--column {part}=COLUMN; it has {_listed(names)}"
            )
    if Part.ERROR not in found and (error := next((n for n in _ERRORS if n in by_last), None)):
        found[Part.ERROR] = by_last[error], ""
    return found


def _with_unit(part: Part, text: str) -> tuple[str, str]:
    """A column and its unit, which is behind the last colon if it is one. Raises `SetupError`."""
    column, _, unit = text.rpartition(":")
    known = (
        [f"{days}-{scale}" for days in DAYS for scale in SCALES]
        if part is Part.TIME
        else [*UNITS]
        if part in (Part.FLUX, Part.DIFFERENCE)
        else []
    )
    if column and unit.lower() in known:
        return column, unit.lower()
    if column and known:
        raise SetupError(f"--column {part}={text}: the unit is one of {', '.join(known)}")
    default = _KNOWN[part].get(text.lower())
    return text, default or ("mjd-utc" if part is Part.TIME else "")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:30]) + (", …" if len(names) > 30 else "")
