"""replay: the alerts of a night as they came, to be sent again: message, key, headers, timestamp.

The packs of the night are sent in the order of their median Kafka timestamps, and each in the order
of offsets. Several processes may have filled batches at once, so the order is that of each
partition but for a few batches. A message that is stored twice, because its event was resent, comes
once. One pack that is damaged or gone costs only the alerts that no other pack holds.
"""

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from stampede.alerts.packets import Cut, joined
from stampede.errors import Damaged, NotFound, SetupError
from stampede.functions.replay_plan import PLACE, plan_of, timestamps
from stampede.read.images import Absent
from stampede.read.lookup import Lookup
from stampede.read.packets import cuts_of
from stampede.settings import Settings
from stampede.store.objects import read_twice
from stampede.store.open import open_objects
from stampede.store.packs import read_rows

AHEAD = 2  # packs read while another is sent
WHY = {
    Absent.GONE: "its retention is over",
    Absent.DAMAGED: "it is damaged",
    Absent.NOT_SENT: "it is not stored",
}


class Replayed(NamedTuple):
    """One alert to send.

    Attributes
    ----------
    milliseconds
        Timestamp of the Kafka record that it came in, since 1970-01-01 UTC; None if it had none.
    headers
        Those of that record, as its event brought them.
    """

    message: bytes
    key: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    milliseconds: int | None


class Unsendable(NamedTuple):
    """An alert that is not whole any more, and why.

    Attributes
    ----------
    alert_id
        None for a whole pack of which nobody knows the alerts.
    """

    alert_id: int | None
    why: str


class Night:
    """The alerts of one night.

    Parameters
    ----------
    night
        Integer MJD TAI.
    survey
        The only survey to take; None for all.

    Attributes
    ----------
    plan
        Which alerts there are to send.

    Raises
    ------
    SetupError
        No alerts of that night are stored.
    StoreDown
        The store does not answer.
    """

    def __init__(self, settings: Settings, night: int, survey: str | None = None) -> None:
        self._settings, self._objects = settings, open_objects(settings)
        self.plan = plan_of(self._objects, night, survey)
        if not self.plan.counts and not self.plan.unreadable:
            of = f" of survey {survey}" if survey else ""
            raise SetupError(f"no packets{of} of the night MJD {night} are stored")

    def __len__(self) -> int:
        return sum(self.plan.counts.values())

    def __iter__(self) -> Iterator[Replayed | Unsendable]:
        """The alerts, in order. Raises `StoreDown`."""
        for why in self.plan.unreadable.values():
            yield Unsendable(None, why)
        lookup = Lookup(self._objects, self._settings, relist_on_miss=False)
        pool = ThreadPoolExecutor(AHEAD, "replay")
        numbers = (number for number, pack in enumerate(self.plan.packs) if pack.wanted.any())
        ahead: list[Future[list[Replayed | Unsendable]]] = []
        try:
            while True:
                while len(ahead) < AHEAD and (number := next(numbers, None)) is not None:
                    ahead.append(pool.submit(self._load, lookup, number))
                if not ahead:
                    return
                yield from ahead.pop(0).result()
        finally:
            pool.shutdown(cancel_futures=True)
            lookup.close()

    def _load(self, lookup: Lookup, number: int) -> list[Replayed | Unsendable]:
        """The alerts of a pack: as many bytes as a batch may have (`batch_bytes`).

        Out of later packs, if this one cannot be read and they hold the same messages.
        """
        pack = self.plan.packs[number]
        try:
            return self._read(lookup, pack.info.key, pack.wanted)
        except (Damaged, NotFound) as error:
            why = f"its packet: {error.message}"
        found: list[Replayed | Unsendable] = []
        lost = pack.wanted.copy()
        for other in self.plan.packs[number + 1 :]:  # an earlier one would have sent them itself
            held = np.zeros(len(other.numbers), bool)
            held[np.unique(other.numbers, return_index=True)[1]] = True
            held &= np.isin(other.numbers, pack.numbers[lost])
            if held.any():
                try:
                    found += self._read(lookup, other.info.key, held)
                except (Damaged, NotFound):
                    continue
                lost &= ~np.isin(pack.numbers, other.numbers[held])
        return found + [Unsendable(alert_id, why) for alert_id in pack.alert_ids[lost].tolist()]

    def _read(self, lookup: Lookup, key: str, wanted: np.ndarray) -> list[Replayed | Unsendable]:
        """The wanted alerts of one pack, `wanted` as in `PackOfNight`.

        Raises `Damaged`, `NotFound`, `StoreDown`.
        """
        rows, _ = read_twice(lambda: read_rows(self._objects.get(key), key), Damaged, NotFound)
        rows = rows.filter(pa.array(wanted)).sort_by([(name, "ascending") for name in PLACE])
        rows = rows.set_column(rows.column_names.index("time"), "time", timestamps(rows))
        alerts = rows.to_pylist()
        cut = [row["alert_id"] for row in alerts if cuts_of(row)]
        images = lookup.images_of(cut)
        return [_replayed(row, images) for row in alerts]


class _Missing(Exception):
    """An image of an alert is not there; the message says why."""


def _replayed(
    row: dict, images: dict[tuple[int, str, str, int | None], bytes | Absent]
) -> Replayed | Unsendable:
    """The alert in a row, whole again; `images` as `Lookup.images_of` returns them."""

    def image(cut: Cut) -> bytes:
        names = row["alert_id"], row["survey"], cut.kind
        file = images.get((*names, row["crc32"])) or images.get((*names, None), Absent.NOT_SENT)
        if isinstance(file, Absent):
            raise _Missing(f"its {cut.kind} cutout: {WHY[file]}")
        return file

    try:
        message = joined(row["packet"], cuts_of(row), image)
    except _Missing as error:
        return Unsendable(row["alert_id"], str(error))
    if isal_zlib.crc32(message) != row["crc32"]:
        return Unsendable(row["alert_id"], "with its images it does not have its CRC-32")
    headers = json.loads(row["headers"] or "{}")
    return Replayed(
        message,
        None if row["key"] is None else row["key"].encode(),
        [(name, value.encode()) for name, value in headers.items()],
        row["time"],
    )
