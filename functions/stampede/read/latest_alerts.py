"""The latest alerts that are stored, read every few seconds at most."""

import time
from itertools import islice
from typing import NamedTuple

import pyarrow.parquet as pq

from stampede.errors import NotFound
from stampede.read.locations import CutoutLocation, by_kind
from stampede.read.lookup import Lookup
from stampede.store.checked_parquet import PARQUET_ERRORS
from stampede.store.night_folders import night_of_folder
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.range_file import ObjectFile
from stampede.store.schema import CUTOUT_PACKS

MOST = 12
MAX_AGE = 10.0
"""Seconds: to find them takes a listing and some small reads."""
NIGHTS, PACKS, LISTED = 3, 3, 2000
"""Nights that are looked at, packs of each that are read, and packs of each that are listed."""
COLUMNS = ["alert_id", "survey", "mjd", "band"]


class LatestAlert(NamedTuple):
    """An alert: where its cutouts are, and its band."""

    locations: list[CutoutLocation]
    band: str | None


class LatestAlerts:
    """Reads them again if the last reading is older than `MAX_AGE`. Use it in one thread."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._read_at = float("-inf")
        self._alerts: list[LatestAlert] = []

    def alerts(self) -> list[LatestAlert]:
        """`MOST` alerts at most, the latest first. Raises `StoreDown`."""
        if time.monotonic() - self._read_at > MAX_AGE:
            self._alerts = self._read()
            self._read_at = time.monotonic()
        return self._alerts

    def _read(self) -> list[LatestAlert]:
        rows = {(row["alert_id"], row["survey"]): row for row in _rows(self._lookup.objects)}
        latest = sorted(rows, key=lambda alert: -rows[alert]["mjd"])[:MOST]
        by_alert: dict[tuple[int, str], list[CutoutLocation]] = {}
        for one in self._lookup.locations(sorted({alert_id for alert_id, _ in latest})):
            by_alert.setdefault((one.alert_id, one.survey), []).append(one)
        return [
            LatestAlert(by_kind(by_alert[alert]), rows[alert]["band"])
            for alert in latest
            if alert in by_alert
        ]


def _rows(objects: Objects) -> list[dict]:
    """Alerts in the newest packs of the latest nights."""
    folders = objects.list_folder(f"{CUTOUT_PACKS.prefix}/").folders
    nights = {night: one for one in folders if (night := night_of_folder(one)) is not None}
    rows: list[dict] = []
    for night in sorted(nights, reverse=True)[:NIGHTS]:
        packs = islice(objects.list(nights[night]), LISTED)
        for info in sorted(packs, key=lambda pack: pack.modified, reverse=True)[:PACKS]:
            rows += _alerts_of(objects, info)
        if len(rows) >= MOST * 3:  # three cutouts an alert
            break
    return rows


def _alerts_of(objects: Objects, info: ObjectInfo) -> list[dict]:
    """The alerts in a pack; none if it is gone or cannot be read."""
    try:
        pack = pq.ParquetFile(ObjectFile(objects, info), pre_buffer=False)
        rows: list[dict] = pack.read(columns=COLUMNS).to_pylist()
    except (NotFound, *PARQUET_ERRORS):
        return []
    return rows
