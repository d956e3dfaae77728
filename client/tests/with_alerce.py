"""Run by test_brokers.py where ALeRCE's client is: asks as its documentation does, prints JSON."""

import json
import os
import sys
from pathlib import Path

import requests

url, ztf, candid, rubin, source, folder = sys.argv[1:]
config = Path(folder) / "alerce.json"
config.write_bytes(requests.get(f"{url}/compatible/alerce/config.json").content)
os.environ["ALERCE_CONFIG_PATH"] = str(config)  # read when the client is imported

from alerce.core import Alerce  # noqa: E402
from alerce.exceptions import APIError  # noqa: E402

client = Alerce()


def refusal(call, *arguments, **named):
    """Status and message of the error that the client raises."""
    try:
        call(*arguments, **named)
    except APIError as error:
        return [error.code, error.message]
    return None


around = {"ra": 10, "dec": -5, "radius": 30}
curve = client.query_lightcurve(ztf, survey="ztf")
stamps = client.get_stamps(ztf, survey="ztf")
rubin_stamps = client.get_stamps(int(rubin), survey="lsst")
of_rubin = client.query_lightcurve(int(rubin), survey="lsst")
png = client.legacy_stamps_client.session.get(
    f"{url}/compatible/alerce/get_stamp?oid={ztf}&candid={candid}&type=science&format=png"
)
found = {
    "object": client.query_object(ztf, survey="ztf"),
    "objects": client.query_objects(survey="ztf", format="pandas", **around)["oid"].tolist(),
    "none": len(
        client.query_objects(survey="ztf", format="json", ra=200, dec=5, radius=1)["items"]
    ),
    "detections": client.query_detections(ztf, survey="ztf", format="pandas")["magpsf"].tolist(),
    "limits": client.query_non_detections(ztf, survey="ztf"),
    "forced": len(client.query_forced_photometry(ztf, survey="ztf")),
    "forced frame": len(client.query_forced_photometry(ztf, survey="ztf", format="pandas")),
    "votable": len(client.query_detections(ztf, survey="ztf", format="votable")),
    "curve": {name: len(points) for name, points in curve.items()},
    "stamps": [
        [hdu.header["STAMP_TYPE"], *hdu.data.shape, float(hdu.data.sum())] for hdu in stamps
    ],
    "numpy": len(client.get_stamps(ztf, int(candid), survey="ztf", format="numpy")),
    "png": [png.status_code, png.headers["content-type"]],
    "avro": len(client.get_avro(ztf, int(candid))),
    "rubin object": client.query_object(int(rubin), survey="lsst"),
    "rubin objects": client.query_objects(survey="lsst", format="json", **around),
    "rubin detections": client.query_detections(int(rubin), survey="lsst"),
    "rubin forced": client.query_forced_photometry(int(rubin), survey="lsst"),
    "rubin curve": {name: len(points) for name, points in of_rubin.items()},
    "rubin stamps": {name: stamp.data.shape for name, stamp in rubin_stamps.items()},
    "probabilities": refusal(client.query_probabilities, ztf, survey="ztf"),
    "of rubin": refusal(client.query_probabilities, int(rubin), survey="lsst"),
    "features": refusal(client.query_features, ztf, survey="ztf"),
    "magstats": refusal(client.query_magstats, ztf, survey="ztf"),
    "classifiers": refusal(client.query_classifiers, survey="ztf"),
    "by class": refusal(client.query_objects, survey="ztf", class_name="SN", **around),
    "unknown": refusal(client.query_object, "ZTF18aaaaaaa", survey="ztf"),
}
print(json.dumps(found))
