"""Finds thumbnails that are not what the cutouts of their alert show.

They may have been drawn before a pack was repaired, by a machine with bad memory, or by an earlier
version that draws differently. The row of a thumbnail has a number that says which files it was
drawn from, and how. So only a few are drawn again: those whose number is not that of the cutouts,
those without one, and a random sample, because bad memory leaves the number right.

Those are compared pixel by pixel: another version of a library may encode the same picture in other
bytes.
"""

import io
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from stampede.alerts.columns import KINDS
from stampede.errors import Damaged, NotFound
from stampede.images.thumbnail import drawn_from, thumbnail
from stampede.store.integrity.verification import SAMPLE
from stampede.store.objects.object_store import Objects
from stampede.store.packs.alert_versions import shown
from stampede.store.packs.pack import Pack, is_whole
from stampede.store.packs.stored_images import cutouts_at
from stampede.store.tables.table import Table

STALE = "its thumbnails are not what its cutouts show"
Alert: TypeAlias = tuple[int, str]
"""Alert id and survey."""


def stale(
    pack: Pack,
    winners: pa.Table,
    table: Table,
    draw: bool = True,
    alone: bool = False,
    chance: Callable[[], float] = random.random,
) -> bool:
    """Whether a pack of cutouts has an alert with another thumbnail than its cutouts give.

    Alerts without a thumbnail, and those whose cutouts readers get from another pack, do not count.

    The number of a thumbnail was computed from the files of its alert, so it proves the checksums
    in `pack.locations`, which may be claims of a table. Files of other alerts are compared with
    theirs.

    Parameters
    ----------
    pack
        The pack, verified.
    winners
        The rows of the table `cutouts` of its alerts.
    table
        The table `thumbnails`.
    draw
        Whether to draw thumbnails; otherwise none is stale.
    alone
        Whether there is no second site: then thumbnails that are lost or damaged count too.
    chance
        A random number from 0 to 1: an alert is in the sample if it is below `SAMPLE`.

    Raises `StoreDown`, and `Damaged` if a file does not have its checksum.
    """
    here = shown_from(pack.key, winners)
    places = {
        (row["alert_id"], row["survey"]): row
        for row in table.lookup(sorted({alert_id for alert_id, _ in here})).to_pylist()
    }
    packs = {place["pack"] for place in places.values()}
    found = draw and alone and not all(_whole(table.objects, one) for one in packs)
    for version in _versions(pack.locations):
        place = places.get(version.alert) if version.shown and version.alert in here else None
        if place and place["drawn_from"] == version.number and chance() >= SAMPLE:
            continue
        files = _files(pack, version)
        if draw and place and not found:
            png = thumbnail([files.get(kind) for kind in KINDS], version.alert[1]).png
            found = _differs(table.objects, place, png)
    return found


def shown_from(key: str, winners: pa.Table) -> set[Alert]:
    """Alert id and survey of the alerts whose cutouts readers get from this pack alone.

    `winners` are the rows of the table `cutouts` of its alerts.
    """
    here, in_others = set[Alert](), set[Alert]()
    for alert_id, survey, pack in _zipped(shown(winners), ("alert_id", "survey", "pack")):
        if pack is not None:
            (here if pack == key else in_others).add((alert_id, survey))
    return here - in_others


class _Version(NamedTuple):
    """A version of an alert in a pack: `rows` are the numbers of its rows, by kind of cutout.

    `number` is what a thumbnail of it has as `drawn_from`. Readers get it if it is `shown`.
    """

    alert: Alert
    rows: dict[str, int]
    number: int
    shown: bool


def _versions(locations: pa.Table) -> Iterator[_Version]:
    """The versions of the alerts in a pack that has these locations."""
    versions: dict[tuple[int, str, int | None], dict[str, int]] = defaultdict(dict)
    names = ("alert_id", "survey", "message_crc32")
    kinds, checksums = locations["kind"].to_pylist(), locations["crc32"].to_pylist()
    for row, version in enumerate(_zipped(locations, names)):
        versions[version][kinds[row]] = row
    several = len({version[:2] for version in versions}) < len(versions)
    current = {*_zipped(shown(locations), names)} if several else versions.keys()
    for version, rows in versions.items():
        sent = [checksums[rows[kind]] if kind in rows else None for kind in KINDS]
        yield _Version(version[:2], rows, drawn_from(sent), version in current)


def _zipped(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in names), strict=True)


def _files(pack: Pack, version: _Version) -> dict[str, bytes]:
    """The files of a version that the survey sent, by kind.

    Raises `Damaged` if one does not have its checksum.
    """
    rows = pack.locations.take([*version.rows.values()]).to_pylist()
    sent = [row for row in rows if row["pack"] is not None]
    try:
        files = cutouts_at(memoryview(pack.data), sent)
    except ValueError:
        files = []
    if [isal_zlib.crc32(file) for file in files] != [row["crc32"] for row in sent]:
        raise Damaged(f"{pack.key}: a row of cutouts points to other bytes")
    return {row["kind"]: file for row, file in zip(sent, files, strict=True)}


def _whole(objects: Objects, pack: str) -> bool:
    """Whether a pack of thumbnails is there with the bytes that its name says."""
    try:
        return is_whole(pack, objects.get(pack))
    except NotFound:
        return False


def _differs(objects: Objects, place: dict[str, Any], png: bytes) -> bool:
    """Whether the stored picture has other pixels; False if it is lost or damaged."""
    if (place["length"], place["crc32"]) == (len(png), isal_zlib.crc32(png)):
        return False
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
