"""The columns of an alert, the same for every survey, and their meaning.

All code after the decoder uses these columns. Only the modules of `stampede.alerts.surveys` know
the surveys' own names for them.

An alert becomes rows of these schemas:

* `CUTOUT`, one row per cutout image (science, template, difference) of an alert; in a pack
  `PACKED_CUTOUT`;
* `DETECTION`, one row per point of a light curve: the alert's own measurement and each row
  of the history in the alert;
* `PACKET`, one row per alert: the message itself, without its images;
* `THUMBNAIL`, one row per alert: its cutouts side by side as one small picture;
* `POSITION`, one row per object and cell of the sky in which any of its detections lies;
* `MOVING`, one row per alert that shows a known body of the solar system.

Conventions: fluxes are AB flux densities in nanojansky, so that ``mag = 31.4 - 2.5 log10(flux)``
(Oke & Gunn 1983; 0 mag = 3631 Jy); times are MJD in TAI; positions are ICRS degrees; ids are
64-bit integers here and strings in JSON, where a double could not hold them.
"""

import pyarrow as pa

KINDS = ("science", "template", "difference")


def _column(name: str, kind: pa.DataType, doc: str, unit: str = "", null: bool = True) -> pa.Field:
    return pa.field(name, kind, null, {"doc": doc, **({"unit": unit} if unit else {})})


def _key(name: str, kind: pa.DataType, doc: str, unit: str = "") -> pa.Field:
    """As `_column`, but never null."""
    return _column(name, kind, doc, unit, null=False)


_OBJECT = (
    _key(
        "survey", pa.string(), "lsst, ztf, winter or desirt; of imported light curves the archive"
    ),
    _key(
        "object_id",
        pa.string(),
        "diaObjectId, else ssObjectId, else, where an alert has neither, its diaSourceId; "
        "objectId (ztf, desirt), objectid (winter); of an archive its own id",
    ),
)
_TIME_AND_POSITION = (
    _key(
        "mjd",
        pa.float64(),
        "MJD TAI: mid-exposure (lsst), start of exposure (others); of an archive its own time, so "
        "heliocentric where that is",
        "d",
    ),
    _column(
        "band",
        pa.string(),
        "u g r i z y (lsst), g r i (ztf), Y J Hs (winter), g r i z (desirt); of an archive also "
        "others, as V",
    ),
    _column("ra", pa.float64(), "ICRS right ascension", "deg"),
    _column("dec", pa.float64(), "ICRS declination", "deg"),
)

_MESSAGE = _column(
    "message_crc32",
    pa.uint32(),
    "CRC-32 of the alert's Avro record, without its frame, as in the table `packets`: which "
    "version of the alert it is; in rows that were stored before 0.1.0, of the whole message",
)
CUTOUT = pa.schema(
    [
        _key("alert_id", pa.int64(), "diaSourceId (lsst), candid (others)"),
        _OBJECT[0],
        _key("kind", pa.string(), "science, template or difference"),
        _OBJECT[1],
        *_TIME_AND_POSITION,
        _MESSAGE,
        _column(
            "fits",
            pa.binary_view(),  # of the message: nothing copies an image before its pack
            "the file as the survey sent it, FITS (lsst) or gzipped FITS (others); null where it "
            "sent no such cutout",
        ),
    ]
)

# In a pack the file is cut in two, so that equal tails are stored once. `fits || tail` is the file.
PACKED_CUTOUT = pa.schema(
    [
        *(CUTOUT.field(name) for name in CUTOUT.names[:-1]),
        _column(
            "fits",
            pa.binary(),
            "the file as the survey sent it, FITS (lsst) or gzipped FITS (others), up to its tail; "
            "null where it sent no such cutout",
        ),
        _column(
            "tail",
            pa.binary(),
            "the file's last HDU, in lsst the PSF; empty where the file is not cut: `fits || tail` "
            "is the file",
        ),
    ]
)

_PROGRAMID = _column(
    "programid",
    pa.int32(),
    "observing programme: 1 public, 2 the partnership's, 3 Caltech's (ztf); null where the survey "
    "has none, and in rows that were stored before the column was",
)

DETECTION = pa.schema(
    [
        _OBJECT[1],
        _OBJECT[0],
        _key("forced", pa.bool_(), "forced photometry at the object's place"),
        _key("limit", pa.bool_(), "a non-detection: flux is null, flux_err the noise"),
        _key(
            "source_id",
            pa.int64(),
            "diaSourceId, candid; of a forced point of lsst visit * 1000 + detector, because Rubin "
            "gives it another diaForcedSourceId when it processes the visit again (in schemas "
            "before 7.0 that id); what has no id carries its visit (ztf's limits and forced "
            "points; lsst's limits), else its time in milliseconds (desirt's forced points), which "
            "archives multiply by 2^20, to add as many bits of a digest of the row",
        ),
        *_TIME_AND_POSITION,
        _column("flux", pa.float32(), "PSF flux on the difference image, signed, AB", "nJy"),
        _column(
            "flux_err",
            pa.float32(),
            "1 sigma of flux; of a ztf limit 1/5 of the 5 sigma limit",
            "nJy",
        ),
        _column(
            "total_flux",
            pa.float32(),
            "PSF flux on the science image, AB (lsst); flux + 10^((31.4 - magnr) / 2.5) where the "
            "reference image has a source at the object's place, which is distnr < 1.4 (ztf); "
            "otherwise null, as in ztf's rows that 0.1.0 stored; what an archive measured, where "
            "that is not a difference flux",
            "nJy",
        ),
        _column(
            "total_flux_err",
            pa.float32(),
            "1 sigma of total_flux; of ztf an upper estimate",
            "nJy",
        ),
        _column(
            "reliability",
            pa.float32(),
            "0 bogus to 1 real: reliability (lsst, desirt), drb, else rb (ztf), rb (winter)",
        ),
        _column("visit", pa.int64(), "visit, in schemas before 7.0 ccdVisitId (lsst); pid (ztf)"),
        _column(
            "detector",
            pa.int32(),
            "detector (lsst), rcid (ztf, and its data releases), boardid (winter)",
        ),
        _key("withdrawn", pa.bool_(), "the survey has withdrawn this point; deprecated (winter)"),
        _key(
            "processed_mjd",
            pa.float64(),
            "MJD TAI when the survey made this version of the point: its own processing time, else "
            "the time of the alert that carried it, else (in histories of ztf and winter) of the "
            "point; of an archive the time of the point. An alert's own detection (ztf, winter) "
            "has a second more: it wins over its copies in later alerts, which are rounded or say "
            "less",
            "d",
        ),
        _column(
            "flags",
            pa.int32(),
            "what may be wrong with a detection, a bit for each flag below; 0 is a good one; null "
            "where the survey sends no such flags (lsst alone has them, but not its forced points, "
            "nor schemas before 7.0)",
        ),
        _column(
            "procstatus",
            pa.string(),
            "processing status of forced photometry: 0, or codes of warnings separated by commas "
            "(ztf; Masci et al. 2023, arXiv:2305.16279); of an archive its flags of a measurement, "
            "as catflags of ztf's data releases",
        ),
        _column(
            "limiting_mag",
            pa.float32(),
            "5 sigma limiting magnitude of the difference image, AB: diffmaglim (others); "
            "lsst sends none, for its points take 31.4 - 2.5 log10(5 flux_err)",
            "mag",
        ),
        _column(
            "rb",
            pa.float32(),
            "0 bogus to 1 real, by ztf's older classifier; its history has this score, and no drb",
        ),
        _PROGRAMID,
        _column(
            "moved",
            pa.bool_(),
            "the survey sent this detection again under another object: its alert, whose id is "
            "`source_id`, names that; null if not",
        ),
    ]
)

# Bits of `flags`, from the lowest on, by the names that Rubin's schemas give them. A bit keeps its
# meaning for ever: new flags go to the end, and 31 fit.
FLAGS = (
    "centroid_flag",
    "psfFlux_flag",
    "psfFlux_flag_edge",
    "psfFlux_flag_noGoodPixels",
    "forced_PsfFlux_flag",
    "shape_flag",
    "isDipole",
    "glint_trail",
    "pixelFlags",
    "pixelFlags_bad",
    "pixelFlags_cr",
    "pixelFlags_crCenter",
    "pixelFlags_edge",
    "pixelFlags_interpolated",
    "pixelFlags_interpolatedCenter",
    "pixelFlags_nodata",
    "pixelFlags_nodataCenter",
    "pixelFlags_offimage",
    "pixelFlags_saturated",
    "pixelFlags_saturatedCenter",
    "pixelFlags_streak",
    "pixelFlags_streakCenter",
    "pixelFlags_suspect",
    "pixelFlags_suspectCenter",
    "pixelFlags_injected",
    "pixelFlags_injectedCenter",
    "pixelFlags_injected_template",
    "pixelFlags_injected_templateCenter",
)

# Many alerts repeat a point of a light curve. Rows that agree in these columns are one point.
DETECTION_KEY = ("object_id", "survey", "forced", "limit", "source_id")
# Of two versions of a point the greater in these columns wins, then in all others in order.
DETECTION_PRECEDENCE = ("withdrawn", "processed_mjd", "reliability")

# Location of a cutout: the columns of the table `cutouts`. Those from `pack` on are null if the
# survey sent no such cutout. The cutouts of an alert share a page of their pack, and alerts share
# tails.
_PACK = pa.field("pack", pa.string(), True, {"doc": "key of the pack in the store"})
_LENGTH = pa.field("length", pa.int32(), True, {"doc": "of the file as sent", "unit": "byte"})
_CRC32 = pa.field("crc32", pa.uint32(), True, {"doc": "CRC-32 of the file as sent"})
CUTOUT_LOCATION = pa.schema(
    [
        pa.field("alert_id", pa.int64(), False),
        pa.field("survey", pa.string(), False),
        pa.field("kind", pa.string(), False),
        pa.field("object_id", pa.string(), False),
        pa.field("mjd", pa.float64(), False),
        _PACK,
        pa.field(
            "page_offset",
            pa.int64(),
            True,
            {"doc": "where the alert's page begins in the pack", "unit": "byte"},
        ),
        pa.field(
            "page_length", pa.int32(), True, {"doc": "of the page, compressed", "unit": "byte"}
        ),
        pa.field(
            "start",
            pa.int32(),
            True,
            {"doc": "where the file begins in the page, decompressed", "unit": "byte"},
        ),
        _LENGTH,
        pa.field(
            "tail_offset",
            pa.int64(),
            True,
            {"doc": "where the tail begins in the pack; null if there is none", "unit": "byte"},
        ),
        pa.field(
            "tail_length", pa.int32(), True, {"doc": "of the tail, compressed", "unit": "byte"}
        ),
        _CRC32,
        _MESSAGE,
    ]
)
# A survey may send an alert again with other images: each version keeps its rows.
CUTOUT_LOCATION_KEY = ("alert_id", "survey", "kind", "message_crc32")
CUTOUT_KEY = ("alert_id", "survey", "message_crc32", "kind")
CUTOUT_LOCATION_PRECEDENCE = ("pack", "page_offset")


def cut_columns(kind: str) -> tuple[str, str]:
    """The columns of a packet for one kind of cutout: where it was cut out, and its length."""
    return f"{kind}_at", f"{kind}_length"


_CUTS = [
    field
    for kind in KINDS
    for field in (
        _column(
            cut_columns(kind)[0],
            pa.int32(),
            f"where in `packet` the {kind} cutout's bytes go; null if they were not cut out",
            "byte",
        ),
        _column(cut_columns(kind)[1], pa.int32(), "how many bytes those are, as sent", "byte"),
    )
]
_RECORD_CRC32 = _key(
    "crc32",
    pa.uint32(),
    "CRC-32 of the Avro record in the message, images included; where `framed_crc32` is null, of "
    "the whole message",
)
# Of the message as it is given, to prove its bytes. Rows that were stored before it was lack it.
_FRAMED_CRC32 = _column(
    "framed_crc32", pa.uint32(), "CRC-32 of the whole message, frame and images included"
)
# What the proof of a night says of the alert. Rows that were stored before it was lack it.
_SHA256 = _column(
    "sha256", pa.binary(32), "SHA-256 of the Avro record in the message, images included"
)
# Of a message out of which history rows of other programmes were cut. Null of a whole one.
_SENT = [
    _column(
        "sent_crc32",
        pa.uint32(),
        "CRC-32 of the record as the survey sent it, `message_crc32` of its cutouts, if rows of "
        "observing programmes that are not stored were cut out of its history; otherwise null",
    ),
    _column("sent_sha256", pa.string(), "SHA-256 of the message as sent, hexadecimal"),
    _column("rows_cut", pa.int32(), "how many rows were cut out"),
]
PACKET = pa.schema(
    [
        CUTOUT.field("alert_id"),
        *_OBJECT,
        _TIME_AND_POSITION[0],
        _column("topic", pa.string(), "Kafka's topic; null if the alert did not come from Kafka"),
        _column("partition", pa.int32(), "and its partition"),
        _column("offset", pa.int64(), "and its offset there"),
        _column("time", pa.timestamp("ms", "UTC"), "timestamp of the Kafka record"),
        _column("key", pa.string(), "key of the Kafka record, as the event brought it"),
        _column("headers", pa.string(), "headers of the Kafka record, as the event brought them"),
        _column("record", pa.string(), "both as bytes, JSON; empty if key and headers tell all"),
        _key("packet", pa.binary(), "the message as it came, without the cutouts' bytes"),
        *_CUTS,
        _RECORD_CRC32,
        *_SENT,
        _FRAMED_CRC32,
        _SHA256,
    ]
)

_DRAWN_FROM = _column(
    "drawn_from",
    pa.uint32(),
    "what it was drawn from: CRC-32 of the number of the drawing and of the CRC-32 of each cutout; "
    "null in rows that were stored before the column was",
)
THUMBNAIL = pa.schema(
    [
        CUTOUT.field("alert_id"),
        *_OBJECT,
        *_TIME_AND_POSITION,
        _DRAWN_FROM,
        _key("png", pa.binary(), "science, template and difference side by side, a grey PNG"),
    ]
)

# Location of a thumbnail: the columns of the table `thumbnails`. A PNG is a range of its pack.
THUMBNAIL_LOCATION = pa.schema(
    [
        *(CUTOUT_LOCATION.field(name) for name in ("alert_id", "survey", "object_id", "mjd")),
        _PACK.with_nullable(False),
        pa.field("offset", pa.int64(), False, {"unit": "byte"}),
        _LENGTH.with_nullable(False).with_metadata({"unit": "byte"}),
        _CRC32.with_nullable(False).with_metadata({"doc": "CRC-32 of the PNG"}),
        pa.field(
            "redrawn",
            pa.int32(),
            True,
            {"doc": "how often it was drawn again because it was wrong; null if never"},
        ),
        _DRAWN_FROM,
    ]
)
THUMBNAIL_KEY = ("alert_id", "survey")
THUMBNAIL_PRECEDENCE = ("redrawn", "pack", "offset")

# Location of a packet: the columns of the table `packets`. A page holds many packets.
PACKET_LOCATION = pa.schema(
    [
        *(THUMBNAIL_LOCATION.field(name) for name in ("alert_id", "survey", "object_id", "mjd")),
        THUMBNAIL_LOCATION.field("pack"),
        _key("offset", pa.int64(), "where the page begins", "byte"),
        _key("length", pa.int32(), "of the page", "byte"),
        _key("row", pa.int32(), "number of the packet in its page"),
        *_CUTS,
        _RECORD_CRC32,
        *_SENT,
        _FRAMED_CRC32,
        _column("merged", pa.int32(), "how often its pack was merged; null of one as stored"),
    ]
)
PACKET_KEY = ("alert_id", "survey", "crc32")
# A packet that was cut and is sent again has the same bytes, and not what proves them. The packs
# that a pack was merged of are deleted: its rows win over theirs.
PACKET_PRECEDENCE = ("rows_cut", "merged", "pack", "offset", "row")

# Where objects are: the columns of the table `positions`, derived from `DETECTION`.
POSITION = pa.schema(
    [
        _key(
            "healpix",
            pa.int64(),
            "HEALPix cell of order 16 in the nested scheme (Gorski et al. 2005), 3.2 arcsec wide, "
            "which holds the position",
        ),
        *_OBJECT,
        _key("ra", pa.float64(), "ICRS right ascension of the latest detection in the cell", "deg"),
        _key("dec", pa.float64(), "ICRS declination of the latest detection in the cell", "deg"),
        _key(
            "detections",
            pa.int32(),
            "how many detections in the cell the alerts of one batch had, history included: "
            "those of the batch with the latest detection",
        ),
        _key("first_mjd", pa.float64(), "MJD TAI of the first of these detections", "d"),
        _key("last_mjd", pa.float64(), "MJD TAI of the latest of these detections", "d"),
        _column(
            "programid",
            pa.int32(),
            "observing programme of these detections; null if it is public (ztf's 1), and where "
            "the survey has none",
        ),
    ]
)
POSITION_KEY = ("healpix", "survey", "object_id", "programid")
POSITION_PRECEDENCE = ("last_mjd", "detections")

# What alerts show of bodies of the solar system: the columns of the table `moving`.
MOVING = pa.schema(
    [
        _key(
            "designation",
            pa.string(),
            "of the body, as the Minor Planet Center writes it unpacked: 2011 UW158, 45685, "
            "C/2017 K2",
        ),
        _OBJECT[0],
        CUTOUT.field("alert_id"),
        _OBJECT[1],
        *_TIME_AND_POSITION,
        *(
            DETECTION.field(name)
            for name in ("flux", "flux_err", "total_flux", "total_flux_err", "reliability")
        ),
        _column("phase_angle", pa.float32(), "Sun, body, observer; lsst alone sends it", "deg"),
        _column("helio_distance", pa.float32(), "from the Sun; lsst alone sends it", "AU"),
        _column("topo_distance", pa.float32(), "from the observer; lsst alone sends it", "AU"),
        _column("predicted_mag", pa.float32(), "of the ephemeris, in V", "mag"),
        _column(
            "offset",
            pa.float32(),
            "distance of the detection from the predicted position; ztf names the nearest body, "
            "which is taken up to 5 arcsec",
            "arcsec",
        ),
        _key(
            "processed_mjd",
            pa.float64(),
            "MJD TAI when the survey made this version of the detection",
            "d",
        ),
        _PROGRAMID,
    ]
)
MOVING_KEY = ("designation", "survey", "alert_id")
MOVING_PRECEDENCE = ("processed_mjd",)
