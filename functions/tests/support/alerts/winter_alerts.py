"""WINTER's alerts made by code: the part of its schema that matters, with a field twice."""

import gzip
import io

import fastavro

from tests.support.alerts import made_alerts

IMAGE = gzip.compress(made_alerts.FITS, mtime=0)


def schema() -> dict:
    """As WINTER's: a field has two definitions in `candidate`."""
    measured = {
        **{"jd": "double", "fid": "int", "progname": "string", "isdiffpos": "boolean"},
        **{"ra": "double", "dec": "double", "magpsf": "float", "sigmapsf": "float"},
    }
    candidate = made_alerts.row_type(
        "candidate",
        {
            **{"candid": "long", "deprecated": "boolean", "programid": "int", **measured},
            **{"diffmaglim": ["float", "null"], "rb": ["float", "null"]},
            **{"sgmag1": ["float", "null"], "boardid": "int"},
        },
    )
    candidate["fields"].append({"name": "sgmag1", "type": ["float", "null"]})
    history = made_alerts.row_type("prv_candidate", {"candid": ["long", "null"], **measured})
    fields = {
        **{"schemavsn": "string", "publisher": "string", "objectid": "string", "candid": "long"},
        "candidate": candidate,
        "prv_candidates": [{"type": "array", "items": history}, "null"],
        **dict.fromkeys(("cutout_science", "cutout_template", "cutout_difference"), "bytes"),
    }
    return {**made_alerts.row_type("alert", fields), "namespace": "winter"}


def record(candid: int = 3608694, **changes) -> dict:
    """An alert of J with earlier detections of Y, J and Hs, one of them negative."""
    measured = {
        **{"jd": 2460381.03, "fid": 2, "progname": "2023A013", "isdiffpos": True},
        **{"ra": 262.575, "dec": 7.264, "magpsf": 13.5, "sigmapsf": 0.03},
    }
    candidate = {
        **{"candid": candid, "deprecated": False, "programid": 1, **measured},
        **{"diffmaglim": 17.7, "rb": None, "sgmag1": 17.5, "boardid": 4},
    }
    earlier = [
        {**measured, "candid": candid - n, "jd": 2460381.03 - n, "fid": fid, "isdiffpos": n != 2}
        for n, fid in ((1, 1), (2, 2), (3, 3), (4, 4))
    ]
    return {
        **{"schemavsn": "0.1", "publisher": "WINTER-mirar", "objectid": "WNTR24aaaaa"},
        **{"candid": candid, "candidate": candidate, "prv_candidates": earlier},
        **dict.fromkeys(("cutout_science", "cutout_template", "cutout_difference"), IMAGE),
        **changes,
    }


def alert(candid: int = 3608694, **changes) -> bytes:
    """One alert, as WINTER sends it: a container of one record."""
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema()), [record(candid, **changes)])
    return out.getvalue()
