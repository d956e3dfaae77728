"""replay: the alerts of a night as they came, to be sent again: message, key, headers, timestamp.

The packs of the night are sent in the order of their median Kafka timestamps, and each in the order
of offsets. Several processes may have filled batches at once, so the order is that of each
partition but for a few batches. A message that is stored twice, because its event was resent, comes
once. One pack that is damaged or gone costs only the alerts that no other pack holds.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from stampede.alerts.packets import sent_crc32
from stampede.config.settings import Settings
from stampede.errors import Damaged, NotFound, SetupError
from stampede.handlers.replay.messages import PackRead, Replayed, Unsendable, replayed
from stampede.handlers.replay.plan import PLACE, plan_of, timestamps
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.packet_reader import cuts_of
from stampede.store.objects.object_store import read_twice
from stampede.store.open import open_objects
from stampede.store.packs.pack import read_rows
from stampede.store.programmes.rights import Rights

AHEAD = 2  # packs read while another is sent


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
        self.plan = plan_of(self._objects, night, survey, Rights.of(settings))
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
        ahead: list[Future[list[Unsendable | PackRead]]] = []
        try:
            while True:
                while len(ahead) < AHEAD and (number := next(numbers, None)) is not None:
                    ahead.append(pool.submit(self._load, lookup, number))
                if not ahead:
                    return
                for read in ahead.pop(0).result():
                    if isinstance(read, Unsendable):
                        yield read
                    else:
                        yield from replayed(read, lookup)
        finally:
            pool.shutdown(cancel_futures=True)
            lookup.close()

    def _load(self, lookup: Lookup, number: int) -> list[Unsendable | PackRead]:
        """The alerts of a pack: as many bytes as a batch may have (`batch_bytes`).

        Out of later packs, if this one cannot be read and they hold the same messages.
        """
        pack = self.plan.packs[number]
        try:
            return [self._read(lookup, pack.info.key, pack.wanted)]
        except (Damaged, NotFound) as error:
            why = f"its packet: {error.message}"
        found: list[Unsendable | PackRead] = []
        lost = pack.wanted.copy()
        for other in self.plan.packs[number + 1 :]:  # an earlier one would have sent them itself
            held = np.zeros(len(other.numbers), bool)
            held[np.unique(other.numbers, return_index=True)[1]] = True
            held &= np.isin(other.numbers, pack.numbers[lost])
            if held.any():
                try:
                    found.append(self._read(lookup, other.info.key, held))
                except (Damaged, NotFound):
                    continue
                lost &= ~np.isin(pack.numbers, other.numbers[held])
        return found + [Unsendable(alert_id, why) for alert_id in pack.alert_ids[lost].tolist()]

    def _read(self, lookup: Lookup, key: str, wanted: np.ndarray) -> PackRead:
        """The wanted alerts of one pack, `wanted` as in `PackOfNight`.

        Raises `Damaged`, `NotFound`, `StoreDown`.
        """
        rows, _ = read_twice(lambda: read_rows(self._objects.get(key), key), Damaged, NotFound)
        small = rows.drop_columns("packet").append_column("row", pa.array(range(rows.num_rows)))
        small = small.filter(pa.array(wanted)).sort_by([(name, "ascending") for name in PLACE])
        small = small.set_column(small.column_names.index("time"), "time", timestamps(small))
        packets = rows["packet"]
        alerts = [(row, packets[row["row"]].as_buffer()) for row in small.to_pylist()]
        cut = [
            (row["alert_id"], row["survey"], sent_crc32(row)) for row, _ in alerts if cuts_of(row)
        ]
        return PackRead(alerts, lookup.parts_of(cut))
