"""Fink's names: of its parameters, and of Stampede's columns.

They are those of https://api.ztf.fink-portal.org and https://api.lsst.fink-portal.org as of July
2026. Fink's `i:` and `r:` are what the survey sent; `d:`, `f:`, `x:` are what Fink adds, which
Stampede has not.
"""

from collections.abc import Mapping
from typing import NamedTuple

from stampede.alerts.columns import KINDS
from stampede.read.compatible.measurements import Names

_OF_POINT: Names = {
    "r:midpointMjdTai": "mjd",
    "r:band": "band",
    "r:ra": "ra",
    "r:dec": "dec",
    "r:psfFlux": "flux",
    "r:psfFluxErr": "flux_err",
    "r:scienceFlux": "total_flux",
    "r:scienceFluxErr": "total_flux_err",
}
OF_SOURCE: Names = {
    "r:diaObjectId": "object_number",
    **_OF_POINT,
    "r:visit": "visit",
    "r:detector": "detector",
}


class Fink(NamedTuple):
    """How Fink writes a survey.

    Attributes
    ----------
    object_id, alert_id
        Its parameters.
    detections, forced
        Its names of the columns of points. ZTF's forced photometry it does not serve.
    array
        The member of an answer that has the pixels of a cutout of a kind.
    """

    survey: str
    object_id: str
    alert_id: str
    detections: Names
    forced: Names
    array: str


ZTF = Fink(
    survey="ztf",
    object_id="objectId",
    alert_id="candid",
    detections={
        "i:objectId": "object_id",
        "i:candid": "source_id",
        "i:jd": "jd_utc",
        "i:fid": "fid",
        "i:pid": "visit",
        "i:ra": "ra",
        "i:dec": "dec",
        "i:magpsf": "mag",
        "i:sigmapsf": "mag_err",
        "i:isdiffpos": "letter",
        "i:diffmaglim": "limiting_mag",
        "i:rb": "rb",
        "i:drb": "drb",
        "i:rcid": "detector",
        "i:programid": "programid",
    },
    forced={},
    array="b:cutout{}_stampData",
)
LSST = Fink(
    survey="lsst",
    object_id="diaObjectId",
    alert_id="diaSourceId",
    detections={"r:diaSourceId": "source_id", **OF_SOURCE, "r:reliability": "reliability"},
    forced=OF_SOURCE,
    array="b:cutout{}",
)
SURVEYS = {ZTF.survey: ZTF, LSST.survey: LSST}
OBJECT: Names = {
    "r:diaObjectId": "object_number",
    "r:ra": "ra",
    "r:dec": "dec",
    "r:nDiaSources": "detections",
    "r:firstDiaSourceMjdTai": "first_mjd",
    "r:lastDiaSourceMjdTai": "last_mjd",
}
"""Of an object of Rubin; of one of ZTF Fink gives the detections."""
OF_BODY: Mapping[str, Names] = {
    ZTF.survey: {
        "i:ssnamenr": "compact",
        "i:objectId": "object_id",
        "i:candid": "alert_id",
        "i:jd": "jd_utc",
        "i:fid": "fid",
        "i:ra": "ra",
        "i:dec": "dec",
        "i:magpsf": "mag",
        "i:sigmapsf": "mag_err",
        "i:isdiffpos": "letter",
        "i:ssdistnr": "offset",
        "i:ssmagnr": "predicted_mag",
        "i:programid": "programid",
    },
    LSST.survey: {
        "f:sso_name": "designation",
        "r:diaSourceId": "alert_id",
        **_OF_POINT,
        "r:reliability": "reliability",
    },
}
"""Of what alerts of each survey show of a body of the solar system."""
DISTANCE = "v:separation_degree"
TAG = "d:tag"
KINDS_OF_FINK = {kind.title(): kind for kind in KINDS}
ABSENT = {
    **dict.fromkeys(("classes", "latests", "tags", "blocks"), "classifications"),
    **dict.fromkeys(("anomaly", "statistics"), "scores and statistics of Fink"),
    **dict.fromkeys(("explorer", "skymap", "metadata"), "search by these"),
    **dict.fromkeys(("resolver",), "names of other catalogues"),
    **dict.fromkeys(("ssocand", "ssobulk", "ssoft", "tracklet"), "ephemerides and fits of orbits"),
    "schema": "schema of Fink's tables",
}
"""Routes whose answers Stampede has not, and what they are."""
