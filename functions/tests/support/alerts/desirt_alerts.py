"""DESIRT's alerts made by code."""

import gzip

from tests.support.alerts import made_alerts

IMAGE = gzip.compress(made_alerts.FITS, mtime=0)
CUTOUTS = ("cutoutScience", "cutoutTemplate", "cutoutDifference")


def schema() -> dict:
    """The part of DESIRT's schema that matters."""
    measured = {"mjd": "double", "band": "string", "psfFlux": "double", "psfFluxErr": "double"}
    measured |= {"diffmaglim": "double", "isdiffpos": "long"}
    own = measured | {"ra": "double", "dec": "double", "reliability": ["null", "double"]}
    history = made_alerts.row_type("desirt.FpHist", measured)
    fields = {
        **{"publisher": "string", "objectId": "string", "candid": "long"},
        "candidate": made_alerts.row_type("desirt.Candidate", own),
        "fp_hists": {"type": "array", "items": history},
        **dict.fromkeys(CUTOUTS, "bytes"),
    }
    return made_alerts.row_type("desirt.alert", fields)


def alert(candid: int = 65346, **changes) -> bytes:
    """An alert in g with forced photometry in g, z and again z, one of it negative."""
    measured = {"mjd": 61229.08, "band": "g", "psfFlux": 1375.25, "psfFluxErr": 255.25}
    measured |= {"diffmaglim": 22.96, "isdiffpos": 1}
    record = {
        **{"publisher": "DESIRT", "objectId": "c4d_260708_015517_xxx_g_dts-1511", "candid": candid},
        "candidate": measured | {"ra": 210.46, "dec": 15.46, "reliability": 0.93},
        "fp_hists": [
            measured | {"mjd": 61229.08 - n, "band": band, "psfFlux": flux}
            for n, (band, flux) in enumerate((("g", 1375.25), ("z", -20.0), ("z", 50.0)))
        ],
        **dict.fromkeys(CUTOUTS, IMAGE),
        **changes,
    }
    return made_alerts.contained([record], schema())
