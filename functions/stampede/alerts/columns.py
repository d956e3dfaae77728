"""The one model of an alert, for every survey: which columns there are and what they mean.

Everything behind the decoder speaks of alerts in these columns only; what a survey calls
them is known to `rubin` and `ztf` and nowhere else.

Two shapes leave an alert, and one more is drawn of the first:

* `CUTOUT`, one row per cutout image (science, template, difference) of an alert;
* `DETECTION`, one row per point of a light curve: the alert's own measurement and each row
  of the history it carries;
* `THUMBNAIL`, one row per alert: its cutouts side by side as one small picture.

Conventions: fluxes are AB flux densities in nanojansky, so that ``mag = 31.4 - 2.5 log10(flux)``
(Oke & Gunn 1983; 0 mag = 3631 Jy); times are MJD in TAI; positions are ICRS degrees; ids are
64-bit integers here and strings in JSON, where a double could not hold them.
"""

import pyarrow as pa

KINDS = ("science", "template", "difference")


def _column(name: str, kind: pa.DataType, doc: str, unit: str = "", null: bool = True) -> pa.Field:
    return pa.field(name, kind, null, {"doc": doc, **({"unit": unit} if unit else {})})


def _key(name: str, kind: pa.DataType, doc: str, unit: str = "") -> pa.Field:
    """A column that is never null."""
    return _column(name, kind, doc, unit, null=False)


_WHO = (
    _key("survey", pa.string(), "lsst or ztf"),
    _key(
        "object_id",
        pa.string(),
        "diaObjectId, else ssObjectId, else, where an alert has neither, its diaSourceId; "
        "objectId (ztf)",
    ),
)
_WHEN_AND_WHERE = (
    _key("mjd", pa.float64(), "MJD TAI: mid-exposure (lsst), start of exposure (ztf)", "d"),
    _column("band", pa.string(), "u g r i z y"),
    _column("ra", pa.float64(), "ICRS right ascension", "deg"),
    _column("dec", pa.float64(), "ICRS declination", "deg"),
)

CUTOUT = pa.schema(
    [
        _key("alert_id", pa.int64(), "diaSourceId (lsst), candid (ztf)"),
        _WHO[0],
        _key("kind", pa.string(), "science, template or difference"),
        _WHO[1],
        *_WHEN_AND_WHERE,
        _column(
            "fits", pa.binary(), "the FITS file, gzipped; null where the survey sent no such cutout"
        ),
    ]
)

DETECTION = pa.schema(
    [
        _WHO[1],
        _WHO[0],
        _key("forced", pa.bool_(), "forced photometry at the object's place"),
        _key("limit", pa.bool_(), "a non-detection: flux is null, flux_err the noise"),
        _key(
            "source_id",
            pa.int64(),
            "diaSourceId, diaForcedSourceId, candid; what has no id of its own carries its visit "
            "here (ztf's limits and forced points; lsst's limits)",
        ),
        *_WHEN_AND_WHERE,
        _column("flux", pa.float32(), "PSF flux on the difference image, signed, AB", "nJy"),
        _column(
            "flux_err",
            pa.float32(),
            "1 sigma of flux; of a ztf limit 1/5 of the 5 sigma limit",
            "nJy",
        ),
        _column("total_flux", pa.float32(), "PSF flux on the science image, AB (lsst)", "nJy"),
        _column("total_flux_err", pa.float32(), "1 sigma of total_flux", "nJy"),
        _column(
            "reliability", pa.float32(), "0 bogus to 1 real: reliability (lsst), drb, else rb (ztf)"
        ),
        _column("visit", pa.int64(), "visit, in schemas before 7.0 ccdVisitId (lsst); pid (ztf)"),
        _column("detector", pa.int32(), "detector (lsst), rcid (ztf)"),
        _key("withdrawn", pa.bool_(), "the survey has withdrawn this point"),
        _key(
            "processed_mjd",
            pa.float64(),
            "MJD TAI when the survey made this version of the point: its own processing time, else "
            "the time of the alert that carried it, else (ztf's history) of the point",
            "d",
        ),
    ]
)

# A point of a light curve is the same point however many alerts repeat it when these agree.
DETECTION_KEY = ("object_id", "survey", "forced", "limit", "source_id")
# Of two versions of one point the greater in these columns wins, then in all others in order.
DETECTION_PRECEDENCE = ("withdrawn", "processed_mjd")

# Where a cutout lies: the columns of the table `cutouts`. `pack`, `offset` and `length` are
# null where the survey sent no such cutout.
CUTOUT_PLACE = pa.schema(
    [
        pa.field("alert_id", pa.int64(), False),
        pa.field("survey", pa.string(), False),
        pa.field("kind", pa.string(), False),
        pa.field("object_id", pa.string(), False),
        pa.field("mjd", pa.float64(), False),
        pa.field("pack", pa.string(), True, {"doc": "key of the pack in the store"}),
        pa.field("offset", pa.int64(), True, {"unit": "byte"}),
        pa.field("length", pa.int32(), True, {"unit": "byte"}),
    ]
)
CUTOUT_PLACE_KEY = ("alert_id", "survey", "kind")
CUTOUT_PLACE_PRECEDENCE = ("pack", "offset")

THUMBNAIL = pa.schema(
    [
        CUTOUT.field("alert_id"),
        *_WHO,
        *_WHEN_AND_WHERE,
        _key("png", pa.binary(), "science, template and difference side by side, a grey PNG"),
    ]
)

# Where a thumbnail lies: the columns of the table `thumbnails`.
THUMBNAIL_PLACE = pa.schema(
    [
        *(CUTOUT_PLACE.field(name) for name in ("alert_id", "survey", "object_id", "mjd")),
        *(CUTOUT_PLACE.field(name).with_nullable(False) for name in ("pack", "offset", "length")),
    ]
)
THUMBNAIL_KEY = ("alert_id", "survey")
THUMBNAIL_PRECEDENCE = CUTOUT_PLACE_PRECEDENCE
