"""How long a store takes for each step of our work: to write, read, list and delete objects.

The objects are below ``probes/timed/``, in a folder of each run's own, and are deleted at its end.
What a killed run left is deleted by the next one, when it is an hour old.
"""

import math
import os
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from statistics import median
from typing import Any

from pydantic.dataclasses import dataclass

from stampede.errors import Damaged, StoreDown
from stampede.store.objects.object_store import Objects
from stampede.store.objects.probes import TIMED, is_probe
from stampede.store.s3.bucket import S3Objects

SMALL, SMALL_BYTES = 50, 4 << 10
PACKS, PACK_BYTES = 4, 8 << 20
LISTINGS = 20
WRITTEN = {"size": SMALL * SMALL_BYTES + PACKS * PACK_BYTES, "objects": SMALL + PACKS}
"""What one run writes at most: bytes and number of objects, by the units of a quota."""
SECONDS = 6.0
"""How long one step goes on at most; each step is taken once at least."""
LEFT = timedelta(hours=1)
"""Age from which an object was left by a run that was killed: no run takes so long."""


@dataclass(frozen=True)
class StepTimes:
    """How long a step took, in seconds.

    Attributes
    ----------
    count
        How often it was taken.
    p50, p99
        Percentiles. With a count below 100 the p99 is the longest time.
    """

    count: int
    p50: float
    p99: float


def measure_steps(objects: Objects) -> dict[str, StepTimes]:
    """Take each step several times, one after the other.

    Raises
    ------
    Damaged
        The store returned other bytes than were written, or a listing lacked an object.
    StoreDown
    """
    _delete_left(objects)
    folder = f"{TIMED}{uuid.uuid4().hex}/"
    times: dict[str, list[float]] = {}
    written: list[str] = []
    try:
        for kind, number, size in (("", SMALL, SMALL_BYTES), ("-pack", PACKS, PACK_BYTES)):
            data, keys = os.urandom(size), [f"{folder}{size}-{n:03}" for n in range(number)]
            # Before it is written: an object may be there although the store did not answer.
            times[f"write{kind}"] = _timed(partial(_write, objects, written, data), keys)
            done = keys[: len(times[f"write{kind}"])]
            times[f"read{kind}"] = _timed(partial(_read, objects, data), done)
        times["list"] = _timed(lambda _: _list(objects, folder, written), range(LISTINGS))
    finally:
        times["delete"] = _timed(objects.delete, written, math.inf)
        _forget_versions(objects, folder)
    return {step: _percentiles(seconds) for step, seconds in times.items()}


def _write(objects: Objects, written: list[str], data: bytes, key: str) -> None:
    written.append(key)
    objects.put(key, data)


def _read(objects: Objects, data: bytes, key: str) -> None:
    if objects.get(key) != data:
        raise Damaged(f"{key}: the store returned other bytes than were written")


def _list(objects: Objects, folder: str, written: list[str]) -> None:
    if lacking := set(written) - {info.key for info in objects.list(folder)}:
        raise Damaged(f"{min(lacking)}: a listing lacks what was written before it")


def _timed(
    step: Callable[[Any], object], each: Iterable[Any], most: float = SECONDS
) -> list[float]:
    """The seconds that a step took for each; it stops after `most` seconds."""
    begin, seconds = time.perf_counter(), list[float]()
    for one in each:
        before = time.perf_counter()
        step(one)
        seconds.append(time.perf_counter() - before)
        if time.perf_counter() - begin >= most:
            break
    return seconds


def _percentiles(seconds: list[float]) -> StepTimes:
    p99 = sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1]
    return StepTimes(len(seconds), round(median(seconds), 5), round(p99, 5))


def _delete_left(objects: Objects) -> None:
    """Delete what runs left that were killed."""
    before = objects.now() - LEFT
    left = [i.key for i in objects.list(TIMED) if i.modified < before and is_probe(i.key)]
    for key in left:
        objects.delete(key)
    for folder in {key.rpartition("/")[0] + "/" for key in left}:
        _forget_versions(objects, folder)


def _forget_versions(objects: Objects, folder: str) -> None:
    """Delete what a bucket with versions keeps; a lock or the rights of the keys may forbid it."""
    if isinstance(objects, S3Objects):
        with suppress(StoreDown):
            objects.forget_versions(folder)
