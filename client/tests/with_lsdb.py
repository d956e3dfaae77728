"""Run by test_others.py in an environment that has LSDB: opens a catalogue, prints its counts."""

import json
import sys

import lsdb
from upath import UPath

place = sys.argv[1]
if place.startswith("s3:"):  # of a bucket for all to read LSDB asks without keys
    place = UPath(place, anon=False)
catalog = lsdb.open_catalog(place)
found = catalog.compute()
near = catalog.cone_search(float(sys.argv[2]), float(sys.argv[3]), 5).compute()
curves = {
    row.object_id: [len(row.lightcurve), float(row.lightcurve["flux"].sum())]
    for row in found.itertuples()
}
print(json.dumps({"rows": len(catalog), "curves": curves, "near": sorted(near["object_id"])}))
