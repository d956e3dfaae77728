"""Run by test_brokers.py where Lasair's client is: asks as its documentation does, prints JSON."""

import json
import sys

import requests
from lasair import LasairError, lasair_client

url, ztf, candid, rubin, source, _ = sys.argv[1:]
client = lasair_client("TOKEN", endpoint=f"{url}/compatible/lasair/api")


def refusal(call, *arguments, **named):
    """The message of the error that the client raises."""
    try:
        call(*arguments, **named)
    except LasairError as error:
        return error.message
    return None


images = client.object(rubin)["lasairData"]["imageUrls"]
found = {
    "all": client.cone(10, -5, radius=10, requestType="all"),
    "nearest": client.cone(10, -5, radius=10, requestType="nearest"),
    "count": client.cone(10, -5, radius=10, requestType="count"),
    "none": client.cone(200, 5),
    "none near": client.cone(200, 5, requestType="nearest"),
    "object": client.object(rubin),
    "whole": client.object(rubin, lite=False, lasair_added=False),
    "ztf": client.object(ztf)["diaObjectId"],
    "image": [requests.get(images[0][kind]).status_code for kind in ("Science", "Difference")],
    "reply": requests.post(
        f"{url}/compatible/lasair/api/sherlock/position/", data={"ra": 1, "dec": 2}
    ).json(),
    "query": refusal(client.query, "diaObjectId", "objects", "nDiaSources > 3"),
    "sherlock": refusal(client.sherlock_object, rubin),
    "annotate": refusal(client.annotate, "topic", rubin, "SN"),
    "wide": refusal(client.cone, 10, -5, radius=2000),
    "unknown": refusal(client.object, "12"),
}
print(json.dumps(found))
