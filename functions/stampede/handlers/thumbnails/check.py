"""Finds thumbnails that are not what the cutouts of their alert show.

They may have been drawn before a pack was repaired, by a machine with bad memory, or by an earlier
version that draws differently. They are compared pixel by pixel: another version of a library may
encode the same picture in other bytes.
"""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from stampede.errors import Damaged, NotFound
from stampede.images.thumbnail import thumbnails
from stampede.store.objects.object_store import Objects
from stampede.store.packs.alert_versions import shown
from stampede.store.packs.pack import read_rows
from stampede.store.tables.table import Table

STALE = "its thumbnails are not what its cutouts show"


def stale(data: pa.Buffer, key: str, winners: pa.Table, table: Table, alone: bool) -> bool:
    """Whether a pack of cutouts has an alert with another thumbnail than its cutouts give.

    Alerts without a thumbnail, and those whose cutouts readers get from another pack, do not count.

    Parameters
    ----------
    data
        The pack, verified.
    winners
        The rows of the table `cutouts` of its alerts.
    table
        The table `thumbnails`.
    alone
        Whether there is no second site: then thumbnails that are lost or damaged count too.

    Raises `StoreDown`.
    """
    here = shown_from(key, winners)
    places = {
        (row["alert_id"], row["survey"]): row
        for row in table.lookup(sorted({alert_id for alert_id, _ in here})).to_pylist()
    }
    if alone and not all(
        _whole(table.objects, pack) for pack in {p["pack"] for p in places.values()}
    ):
        return True
    rows, _ = read_rows(data, key)
    names = zip(rows["alert_id"].to_pylist(), rows["survey"].to_pylist(), strict=True)
    wanted = pa.array([name in here and name in places for name in names], pa.bool_())
    for drawn in thumbnails(shown(rows.filter(wanted), "fits")).rows.to_pylist():
        place = places[drawn["alert_id"], drawn["survey"]]
        png = drawn["png"]
        same = (place["length"], place["crc32"]) == (len(png), isal_zlib.crc32(png))
        if not same and _differs(table.objects, place, png):
            return True
    return False


def shown_from(key: str, winners: pa.Table) -> set[tuple[int, str]]:
    """Alert id and survey of the alerts whose cutouts readers get from this pack alone.

    `winners` are the rows of the table `cutouts` of its alerts.
    """
    here, in_others = set[tuple[int, str]](), set[tuple[int, str]]()
    winners = shown(winners)
    for row in winners.filter(pc.is_valid(winners["pack"])).to_pylist():
        (here if row["pack"] == key else in_others).add((row["alert_id"], row["survey"]))
    return here - in_others


def _whole(objects: Objects, pack: str) -> bool:
    try:
        read_rows(objects.get(pack), pack)
    except (NotFound, Damaged):
        return False
    return True


def _differs(objects: Objects, place: dict[str, Any], png: bytes) -> bool:
    """Whether the stored picture has other pixels; False if it is lost or damaged."""
    try:
        stored = objects.get(place["pack"], place["offset"], place["length"])
    except NotFound:
        return False
    if place["crc32"] not in (None, isal_zlib.crc32(stored)):
        return False  # the pack of thumbnails is damaged: that is another fault
    try:
        return not np.array_equal(_pixels(stored), _pixels(png))
    except Exception:  # whatever it is, it is no picture
        return True


def _pixels(png: bytes) -> np.ndarray:
    from PIL import Image  # only to check what was drawn

    return np.asarray(Image.open(io.BytesIO(png)))
