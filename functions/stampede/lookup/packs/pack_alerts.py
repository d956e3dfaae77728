"""The alerts in packs of cutouts, read without their images."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stampede.errors import Damaged, NotFound
from stampede.lookup import response_warnings
from stampede.lookup.packs.locations import CutoutLocation
from stampede.store.integrity.verification import twice
from stampede.store.integrity.verified_objects import read_columns
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.pack import check_digest
from stampede.telemetry import read_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

KEPT_ALERTS, KEPT_PROOFS = 60_000, 1024
"""Alerts of packs that are kept in memory, 10 MB at most, and packs that need no other proof."""


class PackedAlert(NamedTuple):
    """An alert of which a pack holds cutouts."""

    alert_id: int
    survey: str
    mjd: float
    band: str | None


def alerts_of(objects: Objects, pack: ObjectInfo) -> list[PackedAlert]:
    """The alerts in a pack, each once, the latest first; verified.

    Takes two requests: the footer, and the columns, which lie side by side.

    Raises
    ------
    Damaged
        The pack is not what was stored, or the store lists it and does not give it.
    NotFound
        The pack was deleted.
    StoreDown
        The store does not answer.
    """
    try:
        rows = twice(objects, pack.key, lambda: read_columns(objects, pack, PackedAlert._fields))
    except NotFound:
        if any(info.key == pack.key for info in objects.list(pack.key)):
            raise Damaged(f"{pack.key} is listed, but the store does not have it") from None
        raise
    found = set(map(PackedAlert._make, zip(*(each.to_pylist() for each in rows), strict=True)))
    return sorted(found, key=lambda alert: (-alert.mjd, alert.alert_id, alert.survey))


def note_damage(pack: ObjectInfo, error: Damaged) -> None:
    """Note that the response lacks what this pack holds."""
    read_metrics.DAMAGED_IMAGES.inc()
    log.error("damaged", key=pack.key, why=error.message)
    response_warnings.lacks_pack(pack.key)


class PackAlerts:
    """The alerts in packs, which are kept in memory. Threads may share it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        # By key and etag: a pack that was repaired is read again.
        self._alerts, self._proven = Cache(KEPT_ALERTS), Cache(KEPT_PROOFS)

    def of(self, pack: ObjectInfo) -> list[PackedAlert]:
        """What `alerts_of` returns. None of a pack that was deleted, or is damaged: this is noted.

        Raises `StoreDown`.
        """
        alerts: list[PackedAlert] | None = self._alerts.get((pack.key, pack.etag))
        if alerts is None:
            try:
                alerts = alerts_of(self._objects, pack)
            except NotFound:
                return []
            except Damaged as error:
                note_damage(pack, error)
                return []
            self._alerts.put((pack.key, pack.etag), alerts, 1 + len(alerts))
        return alerts

    def prove(self, pack: ObjectInfo) -> bool:
        """Whether a pack is the one that its name says, or is gone; otherwise this is noted.

        All its bytes are read, so ask only if there is reason to doubt. Raises `StoreDown`.
        """
        if self._proven.holds((pack.key, pack.etag)):
            return True
        try:
            twice(
                self._objects,
                pack.key,
                lambda: check_digest(pack.key, self._objects.get(pack.key)),
            )
        except NotFound:
            return True
        except Damaged as error:
            note_damage(pack, error)
            return False
        self._proven.put((pack.key, pack.etag), True, 1)
        return True


def check_packs(
    packs: PackAlerts,
    alerts: Iterable[tuple[ObjectInfo, PackedAlert]],
    located: Mapping[tuple[int, str], Sequence[CutoutLocation]],
) -> None:
    """Prove those packs of which an alert is located in another pack. Raises `StoreDown`.

    Nearly always such an alert was stored twice.

    Parameters
    ----------
    alerts
        Each with the pack that it was read from.
    located
        Where the cutouts of each alert are, by id and survey.
    """
    doubtful = {
        pack
        for pack, alert in alerts
        if (locations := located.get((alert.alert_id, alert.survey)))
        and pack.key not in {location.pack for location in locations}
    }
    for pack in doubtful:
        packs.prove(pack)
