"""Run by test_brokers.py: asks for an alert by pyvo's DataLink, and prints JSON."""

import base64
import io
import json
import sys
from typing import Any

import fastavro
import requests
from astropy.io import fits
from pyvo.dal.adhoc import DatalinkResults

url, _, _, _, source, _ = sys.argv[1:]
base = f"{url}/compatible/herald"
links = DatalinkResults.from_result_url(f"{base}/links?ID=LSST-AP-DS-{source}")
urls = {link["semantics"]: link.access_url for link in links}
packet = requests.get(urls["#this"])
alert: Any = next(fastavro.reader(io.BytesIO(packet.content)))
with fits.open(io.BytesIO(requests.get(urls["#cutout"]).content)) as file:
    file.verify("exception")
    images = {hdu.name: [*hdu.data.shape, float(hdu.data.sum())] for hdu in file[1:]}
as_json = requests.get(base, params={"ID": source, "RESPONSEFORMAT": "json"}).json()
schema = requests.get(urls["#detached-header"]).json()

parsed: Any = fastavro.parse_schema(schema)


def refusal(end, **params):
    """The status of a response."""
    return requests.get(base + end, params=params).status_code


found = {
    "links": [[link["semantics"], link["content_type"]] for link in links],
    "id": alert["diaSource"]["diaSourceId"],
    "type": packet.headers["content-type"],
    "images": images,
    "same": as_json["diaSource"]["diaSourceId"] == alert["diaSource"]["diaSourceId"],
    "image": base64.b64decode(as_json["cutoutScience"]) == alert["cutoutScience"],
    "schema": parsed["name"],
    "tables": refusal("", ID=source, RESPONSEFORMAT="fits"),
    "xml": refusal("", ID=source, RESPONSEFORMAT="xml"),
    "object": refusal("", ID="LSST-AP-DO-1"),
    "unknown": [refusal(end, ID=12) for end in ("", "/cutouts", "/schema", "/links")],
    "missing": refusal("/links"),
    "other": refusal("/links", ID=source, X=1),
}
print(json.dumps(found))
