"""The alerts in a pack of cutouts, read without their images."""

from typing import NamedTuple

import pyarrow.parquet as pq

from stampede.errors import NotFound
from stampede.store.checked_parquet import PARQUET_ERRORS
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.range_file import ObjectFile


class PackedAlert(NamedTuple):
    """An alert of which a pack holds cutouts."""

    alert_id: int
    survey: str
    mjd: float
    band: str | None


def alerts_of(objects: Objects, pack: ObjectInfo) -> list[PackedAlert]:
    """The alerts in a pack, each once, the latest first; none if it is gone or cannot be read.

    Takes two requests: the footer, and the columns, which lie side by side. Raises `StoreDown`.
    """
    try:
        file = pq.ParquetFile(ObjectFile(objects, pack), pre_buffer=True)
        rows = file.read(columns=[*PackedAlert._fields])
        columns = [rows[name].to_pylist() for name in PackedAlert._fields]
    except (NotFound, *PARQUET_ERRORS):
        return []
    found = set(map(PackedAlert._make, zip(*columns, strict=True)))
    return sorted(found, key=lambda alert: (-alert.mjd, alert.alert_id, alert.survey))
