"""The first responses of a process `read` that starts with a synthetic table of many alerts.

The points of the synthetic light curves are answered as they are. Of the cutouts only locations
exist, so one alert in the middle of the largest run gets a pack of its own.
"""

import gzip
import random
from collections.abc import Iterator

import pyarrow as pa

from stampede.alerts.columns import CUTOUT, KINDS
from stampede.config.settings import Settings
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.runs.schema import DETECTIONS
from stampede_bench.figures import Context, Figure
from stampede_bench.growth.first_answer import SUBJECT, first_answers
from stampede_bench.instruments.synthetic import APART, FIRST_ALERT, random_id

IMAGE = 15_000  # bytes


def real_alert(objects: Objects, alerts: int) -> pa.Table:
    """Store cutouts of an alert from a table of this many; return their locations."""
    noise = random.Random(alerts)
    row = {"alert_id": _alert_id(alerts), "survey": "ztf", "object_id": "ZTF1"}
    row |= {"mjd": 61_000.0, "band": "r", "ra": 10.0, "dec": -5.0}
    images = [gzip.compress(noise.randbytes(IMAGE), 1, mtime=0) for _ in KINDS]
    rows = [row | {"kind": kind, "fits": image} for kind, image in zip(KINDS, images, strict=True)]
    pack = write_pack(pa.Table.from_pylist(rows, CUTOUT), Coverage())
    objects.put(pack.key, memoryview(pack.data))
    return pack.locations


def starts(context: Context, settings: Settings, alerts: int) -> Iterator[Figure]:
    """Start `read` beside tables of this many alerts until it answers."""
    object_id = random_id(DETECTIONS, alerts, random.Random(alerts))
    paths = {
        "a cutout": f"/v1/alerts/{_alert_id(alerts)}/cutouts/science",
        "a light curve": f"/v1/objects/{object_id}/lightcurve",
    }
    yield from first_answers(context, settings, paths, f"{SUBJECT}, {alerts:,} alerts stored")


def _alert_id(alerts: int) -> int:
    return FIRST_ALERT + alerts // 3 * APART
