"""Which alerts of a night `replay` sends, and in which order: the small columns of its packs."""

import secrets
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.errors import Damaged, NotFound
from stampede.store.compaction.packet_plan import WINDOW
from stampede.store.integrity.verified_objects import read_columns
from stampede.store.objects.object_store import ObjectInfo, Objects, read_twice
from stampede.store.packs.night_keys import packed_nights
from stampede.store.packs.pack_name import PackName
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.schema import PACKET_PACKS

CONCURRENCY = 8  # packs whose small columns are read at once
PLACE = ("topic", "partition", "offset")
COLUMNS = ["survey", "alert_id", "mjd", *PLACE, "time", "crc32"]
# Kafka refuses a timestamp that is later by more (message.timestamp.after.max.ms). A sender may
# have written any time into its event, and one alert must not stop a replay.
LATER_SECONDS = 3600


class PackOfNight(NamedTuple):
    """A pack of n rows.

    Attributes
    ----------
    numbers
        64 bits for each row, shape (n,); equal for one message at one Kafka position alone.
    alert_ids
        Of shape (n,).
    wanted
        Which rows to send: booleans of shape (n,). Of equal messages only the first.
    """

    info: ObjectInfo
    numbers: np.ndarray
    alert_ids: np.ndarray
    wanted: np.ndarray


class Plan(NamedTuple):
    """The alerts of a night.

    Attributes
    ----------
    packs
        In order, those without a row to send too.
    counts
        Number of alerts to send, by survey and the topic that they came from.
    timestamps
        Milliseconds since 1970-01-01 UTC of the alerts to send that have a timestamp.
    unreadable
        Why a pack cannot be read, by its key. Nobody knows its alerts.
    """

    packs: list[PackOfNight]
    counts: Counter[tuple[str, str | None]]
    timestamps: np.ndarray
    unreadable: dict[str, str]


def plan_of(objects: Objects, night: int, survey: str | None, rights: Rights = EVERYTHING) -> Plan:
    """The alerts of a night, an integer MJD; only those of `survey` if it is given.

    Without those of programmes that are not stored any more.

    Raises `StoreDown`.
    """

    def places(info: ObjectInfo) -> pa.Table | Damaged:
        try:
            return read_twice(lambda: _places(objects, info), Damaged, NotFound)
        except Damaged as error:
            return error

    infos = [info for info in _packs(objects, night) if rights.holds(info.key)]
    with ThreadPoolExecutor(CONCURRENCY, "plan") as pool:
        read = list(zip(infos, pool.map(places, infos), strict=True))
    unreadable = {info.key: rows.message for info, rows in read if isinstance(rows, Damaged)}
    tables = [(info, rows) for info, rows in read if isinstance(rows, pa.Table) and rows.num_rows]
    tables.sort(key=lambda pair: (_when(pair[1]), pair[0].key))

    secret = secrets.token_bytes(8)  # or a sender could choose an offset that hides another alert
    numbers = [_numbers(rows, secret) for _, rows in tables]
    everything = np.concatenate([np.empty(0, np.uint64), *numbers])
    once = np.zeros(len(everything), bool)
    once[np.unique(everything, return_index=True)[1]] = True

    packs, counts, begin = [], Counter[tuple[str, str | None]](), 0
    moments = [np.empty(0, np.int64)]
    for (info, rows), each in zip(tables, numbers, strict=True):
        wanted = once[begin : begin + len(each)] & (np.floor(rows["mjd"].to_numpy()) == night)
        begin += len(each)
        if survey:
            wanted = wanted & pc.equal(rows["survey"], survey).to_numpy()
        packs.append(PackOfNight(info, each, rows["alert_id"].to_numpy(), wanted))
        kept = rows.filter(pa.array(wanted))
        pairs = zip(kept["survey"].to_pylist(), kept["topic"].to_pylist(), strict=True)
        counts.update(pairs)
        moments.append(timestamps(kept).drop_null().to_numpy())
    return Plan(packs, counts, np.concatenate(moments), unreadable)


def _packs(objects: Objects, night: int) -> Iterator[ObjectInfo]:
    """The packs that may hold alerts of a night: later ones too, if they were merged of it."""
    later = range(night, night + WINDOW)
    for each in (each for each in packed_nights(objects, PACKET_PACKS) if each in later):
        for info in objects.list(f"{PACKET_PACKS.prefix}/{each}/"):
            name = PackName.parse(info.key)
            if name and name.first <= night:
                yield info


def timestamps(rows: pa.Table) -> pa.ChunkedArray:
    """`time` of rows as milliseconds since 1970-01-01 UTC; null where Kafka would refuse it."""
    # Not as datetimes: a time that an earlier version stored may be outside the years 1 to 9999.
    values = rows["time"].cast(pa.int64())
    latest = int(1000 * (time.time() + LATER_SECONDS))
    usable = pc.and_(pc.greater_equal(values, 0), pc.less_equal(values, latest))
    return pc.if_else(usable, values, None)


def _places(objects: Objects, info: ObjectInfo) -> pa.Table:
    """The small columns of a pack that say what each row is. Raises `Damaged`, `StoreDown`."""
    try:
        return read_columns(objects, info, COLUMNS)
    except NotFound:  # retention deleted it
        return PACKET_PACKS.rows.schema.empty_table().select(COLUMNS)


def _when(rows: pa.Table) -> tuple[bool, int, str, int, int]:
    """A key to sort packs by: the median time of a pack's rows, then their median position.

    The medians, because a batch may hold a message that was delivered again much later. Time
    first, because positions tell nothing of the order of two partitions. Packs without any time
    come last.
    """
    times = np.sort(rows["time"].cast(pa.int64()).drop_null().to_numpy())
    ordered = rows.select(PLACE).sort_by([(name, "ascending") for name in PLACE])
    middle = ordered.slice(rows.num_rows // 2, 1).to_pylist()[0]
    position = middle["topic"] or "", middle["partition"] or 0, middle["offset"] or 0
    return not len(times), int(times[len(times) // 2]) if len(times) else 0, *position


def _numbers(rows: pa.Table, secret: bytes) -> np.ndarray:
    """The `numbers` of a pack; nobody without the secret, 8 bytes, can make two of them equal."""
    topics = {name: _number(name, secret) for name in rows["topic"].unique().to_pylist()}
    number = np.array([topics[name] for name in rows["topic"].to_pylist()], np.uint64)
    key = np.uint64(int.from_bytes(secret))
    for name in ("alert_id", "partition", "offset", "crc32"):
        column = pc.fill_null(rows[name].cast(pa.int64()), -1).to_numpy().view(np.uint64)
        number = _mixed(number ^ column ^ key)
    return number


def _number(text: str | None, secret: bytes) -> int:
    digest = blake2b((text or "").encode(), digest_size=8, key=secret).digest()
    return int.from_bytes(digest)


def _mixed(number: np.ndarray) -> np.ndarray:
    """The finalizer of MurmurHash3: every bit changes every other."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        number = (number ^ (number >> np.uint64(33))) * np.uint64(factor)
    mixed: np.ndarray = number ^ (number >> np.uint64(33))
    return mixed
