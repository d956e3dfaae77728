"""Cutouts by the thousand, in the rows that decoding produces.

Each is incompressible and begins as a gzip file does: ZTF's stamps are gzipped by ZTF.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from time import perf_counter
from typing import TypeVar

import numpy as np
import pyarrow as pa

from stampede.alerts.arrays import views
from stampede.alerts.columns import CUTOUT, KINDS
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.tables.table import Table

KB = 1000
CUTOUT_BYTES = 15 * KB  # the size in the users' tables
NIGHT = 61_000
_GZIP = (0x1F, 0x8B)  # the first bytes of a gzip file

A = TypeVar("A")


def noise(size: int, number: int = 0) -> memoryview:
    """Incompressible bytes, different for each number."""
    whole = memoryview(_noise())
    start = number * 4099 % (len(whole) - size)
    return whole[start : start + size]


@cache
def _noise() -> pa.Buffer:
    """80 MiB, made at first use: it takes a third of a second."""
    return pa.py_buffer(np.random.default_rng(1).bytes(80 << 20))


@lru_cache(maxsize=1)
def _stamps(size: int) -> np.ndarray:
    """Rows of `size` bytes: as many as there is noise for."""
    whole = np.frombuffer(_noise(), np.uint8)
    stamps = whole[: len(whole) // size * size].reshape(-1, size).copy()
    stamps[:, : len(_GZIP)] = _GZIP[:size]
    return stamps


def images(first: int, count: int, size: int, night: int = NIGHT) -> pa.Table:
    """`count` cutouts of `size` bytes of the alerts from `first` on, with new bytes every night."""
    numbers = np.arange(count)
    stamps = _stamps(size)
    begin = (first + night) % (len(stamps) - count + 1)
    columns = {
        "alert_id": first + numbers // len(KINDS),
        "survey": pa.repeat("lsst", count),
        "kind": pa.array(sorted(KINDS)).take(pa.array(numbers % len(KINDS))),
        "object_id": pa.array(numbers).cast(pa.string()),
        "mjd": np.full(count, float(night)),
        "band": pa.repeat("r", count),
        "ra": numbers / 7,
        "dec": numbers / -11,
        "message_crc32": (first + numbers // len(KINDS)).astype(np.uint32),
        "fits": views([memoryview(stamp) for stamp in stamps[begin : begin + count]]),
    }
    return pa.table(columns, CUTOUT.remove_metadata())


def store(objects: Objects, table: Table, rows: pa.Table, number: int) -> str:
    """What the function `cutouts` does with a decoded batch. Returns the pack's key."""
    coverage = Coverage.of({("bench", number): range(rows.num_rows // len(KINDS))})
    pack = write_pack(rows, coverage)
    objects.put(pack.key, memoryview(pack.data), pack.sha256)
    table.append(pack.locations, coverage)
    return pack.key


def seconds(act: Callable[[A], object], items: Sequence[A], threads: int) -> float:
    """Seconds that an action on all items takes, in this many threads."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(abs, range(threads)))  # starts the threads
        begin = perf_counter()
        list(pool.map(act, items))
        return perf_counter() - begin
