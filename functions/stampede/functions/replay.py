"""replay: the alerts of a night as they came, to be sent again: message, key, headers, timestamp.

The packs of the night are read in the order of their first Kafka offsets, and each in the order of
offsets. Several processes may have filled batches at once, so the order is that of the topic but
for a few batches. A message that is stored twice, because its event was resent, comes once.
"""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import isal_zlib

from stampede.alerts.packets import Cut, joined
from stampede.errors import Damaged, NotFound, SetupError
from stampede.read.images import Absent
from stampede.read.lookup import Lookup
from stampede.read.packets import cuts_of
from stampede.settings import Settings
from stampede.store.checked_parquet import PARQUET_ERRORS
from stampede.store.objects import ObjectInfo
from stampede.store.open import open_objects
from stampede.store.packs import night_of, read_rows
from stampede.store.range_file import ObjectFile
from stampede.store.schema import PACKET_PACKS

AT_ONCE = 8  # packs whose small columns are read at once
AHEAD = 2  # packs read while another is sent
PLACE = ("topic", "partition", "offset")
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
    """An alert that is not whole any more, and why."""

    alert_id: int
    why: str


class PackOfNight(NamedTuple):
    """A pack, its first Kafka position, and which of its rows to send: booleans of shape (n,)."""

    info: ObjectInfo
    first: tuple[str, int, int]
    wanted: np.ndarray


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
    counts
        Number of alerts by survey and the topic that they came from.

    Raises
    ------
    SetupError
        No alerts of that night are stored.
    Damaged, StoreDown
        A pack cannot be read.
    """

    def __init__(self, settings: Settings, night: int, survey: str | None = None) -> None:
        self._settings, self._objects = settings, open_objects(settings)
        self.counts: Counter[tuple[str, str | None]] = Counter()
        self.packs = self._plan(night, survey)
        if not self.packs:
            of = f" of survey {survey}" if survey else ""
            raise SetupError(f"no packets{of} of the night MJD {night} are stored")

    def __len__(self) -> int:
        return sum(self.counts.values())

    def __iter__(self) -> Iterator[Replayed | Unsendable]:
        """The alerts, in order. Raises `StoreDown`, `Damaged`."""
        lookup = Lookup(self._objects, self._settings, relist_on_miss=False)
        pool, packs = ThreadPoolExecutor(AHEAD, "replay"), iter(self.packs)
        ahead: list[Future[list[Replayed | Unsendable]]] = []
        try:
            while True:
                while len(ahead) < AHEAD and (pack := next(packs, None)):
                    ahead.append(pool.submit(self._load, lookup, pack))
                if not ahead:
                    return
                yield from ahead.pop(0).result()
        finally:
            pool.shutdown(cancel_futures=True)
            lookup.close()

    def _plan(self, night: int, survey: str | None) -> list[PackOfNight]:
        """The packs with alerts to send, in order; counts the alerts."""
        infos = [
            info
            for info in self._objects.list(f"{PACKET_PACKS.prefix}/{night}/")
            if night_of(info.key) == night
        ]
        with ThreadPoolExecutor(AT_ONCE, "plan") as pool:
            tables = list(pool.map(self._places, infos))
        firsts = [_first(rows) for rows in tables]
        order = sorted(range(len(infos)), key=lambda number: (firsts[number], infos[number].key))
        numbers = [_numbers(tables[number]) for number in order]
        everything = np.concatenate([np.empty(0, np.uint64), *numbers])
        once = np.zeros(len(everything), bool)
        once[np.unique(everything, return_index=True)[1]] = True
        found, begin = [], 0
        for number, each in zip(order, numbers, strict=True):
            rows, wanted = tables[number], once[begin : begin + len(each)]
            begin += len(each)
            if survey:
                wanted = wanted & pc.equal(rows["survey"], survey).to_numpy()
            if wanted.any():
                kept = rows.filter(pa.array(wanted))
                pairs = zip(kept["survey"].to_pylist(), kept["topic"].to_pylist(), strict=True)
                self.counts.update(pairs)
                found.append(PackOfNight(infos[number], firsts[number], wanted))
        return found

    def _places(self, info: ObjectInfo) -> pa.Table:
        """The small columns of a pack that say what each row is."""
        columns = ["survey", "alert_id", *PLACE, "crc32"]
        try:
            file = pq.ParquetFile(ObjectFile(self._objects, info), pre_buffer=False)
            return file.read(columns, use_threads=False)
        except NotFound:  # retention deleted it
            return PACKET_PACKS.rows.schema.empty_table().select(columns)
        except PARQUET_ERRORS as error:
            raise Damaged(f"{info.key} cannot be read: {error}") from None

    def _load(self, lookup: Lookup, pack: PackOfNight) -> list[Replayed | Unsendable]:
        """The alerts of a pack: as many bytes as a batch may have (`batch_bytes`)."""
        rows, _ = read_rows(self._objects.get(pack.info.key), pack.info.key)
        rows = rows.filter(pa.array(pack.wanted)).sort_by([(name, "ascending") for name in PLACE])
        alerts = rows.to_pylist()
        cut = [row["alert_id"] for row in alerts if cuts_of(row)]
        images = {
            (place.alert_id, place.survey, place.kind): image
            for place, image in lookup.images.many(lookup.locations(cut) if cut else [])
        }
        return [_replayed(row, images) for row in alerts]


class _Missing(Exception):
    """An image of an alert is not there; the message says why."""


def _replayed(
    row: dict, images: dict[tuple[int, str, str], bytes | Absent]
) -> Replayed | Unsendable:
    """The alert in a row, whole again; `images` are files as sent, by alert id, survey and kind."""

    def image(cut: Cut) -> bytes:
        file = images.get((row["alert_id"], row["survey"], cut.kind), Absent.NOT_SENT)
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
        None if row["time"] is None else round(1000 * row["time"].timestamp()),
    )


def _first(rows: pa.Table) -> tuple[str, int, int]:
    """The least Kafka position of some rows; those without one come first."""
    if not rows.num_rows:
        return "", 0, 0
    least = rows.sort_by([(name, "ascending") for name in PLACE]).slice(0, 1).to_pylist()[0]
    return least["topic"] or "", least["partition"] or 0, least["offset"] or 0


def _numbers(rows: pa.Table) -> np.ndarray:
    """64 bits for each row, equal for one message at one Kafka position alone; shape (n,)."""
    topics = {name: _number(name) for name in rows["topic"].unique().to_pylist()}
    number = np.array([topics[name] for name in rows["topic"].to_pylist()], np.uint64)
    for name in ("alert_id", "partition", "offset", "crc32"):
        column = pc.fill_null(rows[name].cast(pa.int64()), -1).to_numpy().view(np.uint64)
        number = _mixed(number ^ column)
    return number


def _number(text: str | None) -> int:
    return int.from_bytes(blake2b((text or "").encode(), digest_size=8).digest())


def _mixed(number: np.ndarray) -> np.ndarray:
    """The finalizer of MurmurHash3: every bit changes every other."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        number = (number ^ (number >> np.uint64(33))) * np.uint64(factor)
    return number ^ (number >> np.uint64(33))
