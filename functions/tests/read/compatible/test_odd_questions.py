"""Whatever a stranger asks, the answer is no fault of the server."""

import json
import random
from urllib.parse import urlencode

import pytest

from stampede.read.compatible.routes import ROUTES
from tests.support.read.read_service import LSST_ALERT, LSST_OBJECT, ZTF_ALERT, ZTF_OBJECT, Reader

AROUND = {"ra": "10", "dec": "-5", "radius": "5"}
TABLE = {"columns": "*", "output-format": "csv"}
PICTURE = {"kind": "Science", "output-format": "PNG", "stretch": "linear", "pmin": "1"}
OF_RUBIN = {"oid": LSST_OBJECT, "survey_id": "lsst"}
# What each route answers well, by the end of its path.
GOOD = {
    "herald/cutouts": {"ID": str(LSST_ALERT)},
    "/ztf/v1/objects": AROUND | {"ndet": "1", "firstmjd": "59000", "page": "1", "order_by": "ndet"},
    "list_objects": AROUND | {"n_det": "1", "page_size": "5", "order_mode": "ASC"},
    "_api/object": OF_RUBIN,
    "detections": OF_RUBIN,
    "lightcurve": OF_RUBIN,
    "photometry": OF_RUBIN,
    "get_stamp": {"oid": ZTF_OBJECT, "candid": str(ZTF_ALERT), "type": "science", "format": "png"},
    "_api/stamp": {
        **{"oid": LSST_OBJECT, "measurement_id": str(LSST_ALERT), "survey_id": "lsst"},
        **{"stamp_type": "cutoutScience", "file_format": "fits"},
    },
    "get_avro": {"oid": ZTF_OBJECT, "candid": str(ZTF_ALERT)},
    "v1/objects": TABLE | {"objectId": ZTF_OBJECT, "withupperlim": "true"},
    "sources": TABLE | {"diaObjectId": LSST_OBJECT, "midpointMjdTai": "60800.5"},
    "fp": TABLE | {"diaObjectId": LSST_OBJECT},
    "conesearch": TABLE | AROUND | {"n": "5", "startdate": "2021-07-03", "window": "9"},
    "cutouts": PICTURE | {"objectId": ZTF_OBJECT, "candid": str(ZTF_ALERT)},
    "cone/": AROUND | {"requestType": "all"},
    "object/": {"objectId": LSST_OBJECT, "lite": "false", "reliabilityThreshold": "0.5"},
    "/herald": {"ID": str(LSST_ALERT), "RESPONSEFORMAT": "json"},
    "": {"ID": str(LSST_ALERT)},
}
VALUES = (
    *(
        ZTF_OBJECT,
        LSST_OBJECT,
        str(ZTF_ALERT),
        str(LSST_ALERT),
        "666",
        "77",
        "ZTF00bad",
        "10",
        "-5",
    ),
    *(
        "0",
        "-1",
        "1e400",
        "nan",
        "5",
        "science",
        "Science",
        "All",
        "fits",
        "png",
        "array",
        "parquet",
    ),
    *("votable", "lsst", "ztf", "true", "all", "*", "i:jd,r:ra", "log", "2021-07-03", "\ud800"),
    *("", " ", "\x00", "ÿ" * 40, "9" * 30, "%2e", "'", "<b>", "json", "ndet", "template", "1e18"),
    *("180", "-90", "360", "1e-300", "0001-01-01", "9999-12-31", "ZTF21abiuvdk,77", "999999999"),
)


def asked_of(path: str, chance: random.Random) -> dict[str, str]:
    """A good question with up to two values changed, and at times without one."""
    good = next(asked for end, asked in GOOD.items() if path.endswith(end))
    if "/lsst/" in path:
        good = {
            {"objectId": "diaObjectId", "candid": "diaSourceId"}.get(name, name): value
            for name, value in good.items()
            if name != "withupperlim" and (name != "objectId" or not path.endswith("cutouts"))
        }
        swapped = {ZTF_OBJECT: LSST_OBJECT, str(ZTF_ALERT): str(LSST_ALERT)}
        good = {name: swapped.get(value, value) for name, value in good.items()}
    asked = dict(good)
    for name in chance.sample([*asked], chance.randint(0, min(2, len(asked)))):
        asked[name] = chance.choice(VALUES)
    if asked and chance.random() < 0.2:
        del asked[chance.choice([*asked])]
    return asked


@pytest.mark.long
def test_no_question_is_a_fault(compatible: Reader) -> None:
    chance = random.Random(39)
    seen: dict[int, int] = {}
    answered = set()
    routes = [route for route in ROUTES if route.endpoint.__name__ != "not_held"]
    for number in range(1000):
        route = chance.choice(routes)
        path = "/compatible" + route.path
        for name in route.param_convertors:
            of_path = ("ztf", "lsst") if name == "survey" else (ZTF_OBJECT, *VALUES)
            value = chance.choice(of_path)
            path = path.replace(f"{{{name}}}", urlencode({"": value}, errors="replace")[1:])
        asked = asked_of(path, chance) if "{oid}" not in route.path else {}
        if "POST" in route.methods:
            got = compatible(path, "POST", json.dumps(asked).encode())
        else:
            got = compatible(f"{path}?{urlencode(asked, errors='replace')}")
        assert got.status < 500 or got.status == 501, (number, path, asked, got.data)
        seen[got.status] = seen.get(got.status, 0) + 1
        if got.status == 200:
            answered.add(route.path)
    assert {200, 400, 404} <= set(seen), seen
    assert len(answered) > 20, sorted(answered)
