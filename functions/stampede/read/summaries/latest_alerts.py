"""The latest alerts that are stored, read every few seconds at most."""

from typing import NamedTuple

from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.locations import CutoutLocation, by_kind
from stampede.lookup.packs.pack_alerts import PackAlerts, PackedAlert, check_packs
from stampede.lookup.ttl_cache import TtlCache
from stampede.read.summaries.nights import NightPacks, nights_of
from stampede.store.objects.object_store import ObjectInfo

DEFAULT, MOST = 12, 100
MAX_AGE = 10.0
"""Seconds: to find them takes a listing and some small reads."""
NIGHTS, PACKS, LISTED = 3, 3, 2000
"""Nights that are looked at, packs of each that are read, and packs of each that are listed."""


class LatestAlert(NamedTuple):
    """An alert: where its cutouts are, and its band."""

    locations: list[CutoutLocation]
    band: str | None


class LatestAlerts:
    """Reads them again if the last reading is older than `MAX_AGE`. Use it in one thread."""

    def __init__(self, lookup: Lookup, packs: NightPacks, alerts: PackAlerts) -> None:
        self._lookup, self._packs, self._of_packs = lookup, packs, alerts
        self._alerts = TtlCache(self._read, MAX_AGE)

    def alerts(self, limit: int = DEFAULT) -> list[LatestAlert]:
        """`limit` alerts at most, up to `MOST`, the latest first.

        Notes the packs that are damaged. Raises `StoreDown`.
        """
        return self._alerts()[:limit]

    def _read(self) -> list[LatestAlert]:
        packed = self._packed()
        found = {(alert.alert_id, alert.survey): alert for _, alert in packed}
        latest = sorted(found, key=lambda name: -found[name].mjd)[:MOST]
        by_alert = self._lookup.by_alert({alert_id for alert_id, _ in latest})
        check_packs(self._of_packs, packed, by_alert)
        return [
            LatestAlert(by_kind(by_alert[name]), found[name].band)
            for name in latest
            if name in by_alert
        ]

    def _packed(self) -> list[tuple[ObjectInfo, PackedAlert]]:
        """Alerts in the newest packs of the latest nights, with their packs."""
        objects = self._lookup.objects
        alerts: list[tuple[ObjectInfo, PackedAlert]] = []
        for night in nights_of(objects)[:NIGHTS]:
            packs = self._packs.of(night, LISTED)
            for pack in sorted(packs, key=lambda pack: pack.modified, reverse=True)[:PACKS]:
                alerts += ((pack, alert) for alert in self._of_packs.of(pack))
            if len(alerts) >= MOST:
                break
        return alerts
