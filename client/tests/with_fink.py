"""Run by test_brokers.py: asks as Fink's documentation does, by requests, and prints JSON."""

import io
import json
import sys

import numpy as np
import pandas as pd
import requests
from astropy.io import fits, votable
from PIL import Image

url, ztf, candid, rubin, source, _ = sys.argv[1:]
READERS = {
    "json": pd.read_json,
    "csv": pd.read_csv,
    "parquet": pd.read_parquet,
    "votable": lambda file: votable.parse(file).get_first_table().to_table().to_pandas(),
}


def ask(survey, end, **payload):
    """A response, as the examples in Fink's documentation ask for it."""
    return requests.post(f"{url}/compatible/fink/{survey}/api/v1/{end}", json=payload)


def table(survey, end, **payload):
    """The table in a response."""
    response = ask(survey, end, **payload)
    assert response.status_code == 200, response.text
    return READERS[payload.get("output-format", "json")](io.BytesIO(response.content))


def refusal(survey, end, **payload):
    """The status of a response, and its message."""
    response = ask(survey, end, **payload)
    return [response.status_code, response.json()["detail"]]


def cutout(survey, **payload):
    """The bytes of a cutout."""
    response = ask(survey, "cutouts", **payload)
    assert response.status_code == 200, response.text
    return io.BytesIO(response.content)


objects = table("ztf", "objects", objectId=ztf)
limits = table("ztf", "objects", objectId=ztf, withupperlim="True")
by_get = requests.get(f"{url}/compatible/fink/ztf/api/v1/objects?objectId={ztf}&columns=i:jd")
around = {"ra": 10, "dec": -5, "radius": 10}
cone = table("ztf", "conesearch", **around, columns="i:objectId,i:magpsf")
at = {"objectId": ztf, "candid": candid, "kind": "Science"}
of_source = {"diaSourceId": source, "kind": "Difference"}
with fits.open(
    cutout("ztf", **at, **{"output-format": "FITS"}), ignore_missing_simple=True
) as file:
    pixels = file[0].data.astype(float)
array = json.load(cutout("ztf", **at, **{"output-format": "array"}))
every = json.load(cutout("lsst", diaSourceId=source, kind="All", **{"output-format": "array"}))
found = {
    "columns": objects.columns.tolist(),
    "objects": objects[["i:candid", "i:jd", "i:fid", "i:magpsf", "i:isdiffpos"]].values.tolist(),
    "tags": limits["d:tag"].tolist(),
    "by get": by_get.json(),
    "formats": {
        name: len(table("ztf", "objects", objectId=ztf, **{"output-format": name}))
        for name in READERS
    },
    "cone": cone.to_dict("records"),
    "sexagesimal": len(table("ztf", "conesearch", ra="00:40:00", dec="-05:00:00", radius="10")),
    "later": len(table("ztf", "conesearch", **around, startdate="2021-07-06 00:00:00")),
    "earlier": len(table("ztf", "conesearch", **around, startdate="2021-07-03", window=2)),
    "none": len(table("ztf", "conesearch", ra=200, dec=5, radius=10)),
    "png": Image.open(cutout("ztf", **at)).size,
    "latest": Image.open(cutout("ztf", objectId=ztf, kind="Science", stretch="linear")).size,
    "fits": [float(pixels.sum()), float(np.sum(array["b:cutoutScience_stampData"]))],
    "rubin object": table("lsst", "objects", diaObjectId=rubin).to_dict("records"),
    "rubin sources": table("lsst", "sources", diaObjectId=rubin).to_dict("records"),
    "rubin at": len(table("lsst", "sources", diaObjectId=rubin, midpointMjdTai=60000.0)),
    "rubin forced": table("lsst", "fp", diaObjectId=rubin)["r:band"].tolist(),
    "rubin cone": table("lsst", "conesearch", **around)["r:diaObjectId"].tolist(),
    "rubin png": Image.open(cutout("lsst", **of_source)).size,
    "rubin arrays": {name: np.shape(values) for name, values in every.items()},
    "tag": refusal("lsst", "tags"),
    "class": refusal("ztf", "latests", **{"class": "SN candidate", "n": 10}),
    "added": refusal("ztf", "objects", objectId=ztf, columns="i:jd,d:cdsxmatch"),
    "colour": refusal("ztf", "cutouts", **at, colormap="Blues"),
    "radius": refusal("ztf", "conesearch", ra=10, dec=-5, radius=36000),
    "bad": refusal("ztf", "conesearch", ra="kfdlkj", dec="lkfdjf", radius=5),
    "unknown": refusal("ztf", "objects", objectId="ZTF18aaaaaaa"),
    "misspelt": refusal("ztf", "objects", objectId=ztf, column="i:jd"),
}
print(json.dumps(found))
