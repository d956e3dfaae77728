"""The alerts of an object that are stored."""

import pyarrow as pa

from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.locations import CutoutLocation, by_kind
from stampede.lookup.points import measured

MOST_FRAMES = 100
"""Most pictures of a strip. To draw 100 of 252 x 252 pixels takes 0.2 s."""


def stored_alerts(
    lookup: Lookup, object_id: str, detections: pa.Table, chosen: int | None = None
) -> list[list[CutoutLocation]]:
    """The cutouts of each stored alert of an object, the latest alert first.

    Of the alert `chosen` too, even if the survey has withdrawn its detection.
    """
    ids = measured(detections.select(["source_id", "forced", "limit"]))["source_id"]
    found = lookup.by_alert({*ids.drop_null().to_pylist(), *([chosen] if chosen else [])})
    own = [by_kind(one) for one in found.values() if one[0].object_id == object_id]
    return sorted(own, key=lambda locations: -locations[0].mjd)
