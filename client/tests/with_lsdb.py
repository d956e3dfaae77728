"""Run by test_others.py in an environment that has LSDB: opens a catalogue, prints what it has.

Arguments: the place; right ascension and declination for a cone; and, if wanted, a JSON list of
positions [ra, dec] to be cross-matched, each with all objects within 10 arcsec.
"""

import json
import logging
import sys
from contextlib import redirect_stdout

import lsdb
import pandas
from hats.io.validation import is_valid_catalog
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
searched = {}
with redirect_stdout(sys.stderr):  # it says what it searches for
    for name in sorted(curves)[:3] if catalog.hc_collection else ():
        rows = catalog.id_search({"object_id": name}).compute()
        searched[name] = rows["object_id"].tolist()
result = {
    "rows": len(catalog),
    "curves": curves,
    "near": sorted(near["object_id"]),
    "searched": searched,
}
if "://" not in sys.argv[1]:  # it lists folders, which HTTP does not have
    logging.basicConfig(level=logging.WARNING)
    result["valid"] = is_valid_catalog(place, strict=True)
if len(sys.argv) > 4:
    positions = pandas.DataFrame(json.loads(sys.argv[4]), columns=["ra", "dec"])
    positions["at"] = range(len(positions))
    given = lsdb.from_dataframe(positions, margin_threshold=None)
    pairs = given.crossmatch(
        catalog,
        radius_arcsec=10,
        n_neighbors=100,
        suffixes=("", "_sky"),
        suffix_method="all_columns",
    )
    columns = pairs.compute()
    result["pairs"] = sorted(zip(columns["at"].tolist(), columns["object_id_sky"], strict=True))
print(json.dumps(result))
