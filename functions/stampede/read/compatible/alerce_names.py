"""ALeRCE's names: of Stampede's columns, and of its own routes.

They are those of https://api.alerce.online/ztf/v1 and https://api-lsst.alerce.online, and of the
client `alerce` 2.3, as of September 2026.
"""

from typing import NamedTuple

from stampede.lookup.points import PointKind
from stampede.read.compatible.measurements import Names


class Survey(NamedTuple):
    """How ALeRCE writes a survey.

    Attributes
    ----------
    object, points
        ALeRCE's names of what Stampede has of an object, and of each kind of point.
    utc
        Whether times are UTC, otherwise they are TAI.
    """

    name: str
    object: Names
    points: dict[PointKind, Names]
    utc: bool


ZTF = Survey(
    name="ztf",
    object={
        "oid": "object_id",
        "ndet": "detections",
        "firstmjd": "first_mjd",
        "lastmjd": "last_mjd",
        "deltajd": "days",
        "meanra": "ra",
        "meandec": "dec",
    },
    points={
        PointKind.DETECTION: {
            "tid": "survey",
            "mjd": "mjd_utc",
            "candid": "source_id",
            "fid": "fid",
            "pid": "visit",
            "diffmaglim": "limiting_mag",
            "isdiffpos": "sign",
            "magpsf": "mag",
            "sigmapsf": "mag_err",
            "ra": "ra",
            "dec": "dec",
            "rb": "rb",
            "drb": "drb",
            "has_stamp": "has_stamp",
        },
        PointKind.LIMIT: {
            "tid": "survey",
            "mjd": "mjd_utc",
            "fid": "fid",
            "diffmaglim": "limiting_mag",
        },
        PointKind.FORCED: {
            "tid": "survey",
            "oid": "object_id",
            "mjd": "mjd_utc",
            "fid": "fid",
            "pid": "visit",
            "mag": "mag",
            "e_mag": "mag_err",
            "isdiffpos": "sign",
            "ra": "ra",
            "dec": "dec",
        },
    },
    utc=True,
)
OF_FORCED: Names = {"pid": "visit", "diffmaglim": "limiting_mag", "procstatus": "procstatus"}
"""What ALeRCE nests in `extra_fields` of a forced point of ZTF; its client joins it by `pid`."""
OF_RUBIN: Names = {
    "oid": "object_number",
    "survey_id": "survey",
    "mjd": "mjd",
    "ra": "ra",
    "dec": "dec",
    "band": "band_number",
    "visit": "visit",
    "detector": "detector",
    "psfFlux": "flux",
    "psfFluxErr": "flux_err",
    "scienceFlux": "total_flux",
    "scienceFluxErr": "total_flux_err",
}
LSST = Survey(
    name="lsst",
    object={
        "oid": "object_number",
        "n_det": "detections",
        "firstmjd": "first_mjd",
        "lastmjd": "last_mjd",
        "deltamjd": "days",
        "meanra": "ra",
        "meandec": "dec",
    },
    points={
        PointKind.DETECTION: {
            **OF_RUBIN,
            "measurement_id": "source_id",
            "reliability": "reliability",
            "has_stamp": "has_stamp",
        },
        PointKind.LIMIT: OF_RUBIN,
        PointKind.FORCED: OF_RUBIN,
    },
    utc=False,
)
BANDS = {"g": 1, "r": 2, "i": 3, "z": 4, "y": 5, "u": 6}
"""ALeRCE's numbers of Rubin's bands; its client looks them up in the `band_map` of each point."""

OF_ZTF = "/ztf/v1/objects/%s"
ZTF_ROUTES = {
    "objects": "/ztf/v1/objects",
    "single_object": OF_ZTF,
    **{
        name: f"{OF_ZTF}/{name}"
        for name in (
            *("detections", "non_detections", "lightcurve"),
            *("magstats", "probabilities", "features"),
        )
    },
    "single_feature": f"{OF_ZTF}/features/%s",
    "classifiers": "/ztf/v1/classifiers",
    "classifier_classes": "/ztf/v1/classifiers/%s/%s/classes",
    "forced_photometry": "/v2/lightcurve/forced-photometry/%s",
}
RUBIN_ROUTES = {
    "objects": "object_api/list_objects",
    "single_object": "object_api/object",
    "detections": "lightcurve_api/detections",
    "forced_photometry": "lightcurve_api/forced-photometry",
    "non_detections": "lightcurve_api/non_detections",
    "lightcurve": "lightcurve_api/lightcurve",
    "probabilities": "probability_api/probability",
}
AVRO_ROUTES = {"get_stamp": "/get_stamp", "get_avro": "/get_avro"}
