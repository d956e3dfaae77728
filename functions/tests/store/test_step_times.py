"""Timing a store: nothing is left behind, nothing of others is touched, wrong answers are told."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from stampede.config.settings import Settings
from stampede.errors import Damaged, StoreDown
from stampede.store.integrity.verification import foreign
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.objects.probes import PROBES, is_probe
from stampede.store.open import open_objects
from stampede.store.replication.site_local import of_one_site
from stampede.store.step_times import LEFT, LISTINGS, PACKS, SMALL, measure_steps
from tests.support.store.watched_objects import Forwarding

COUNTS = {
    "write": SMALL,
    "read": SMALL,
    "write-pack": PACKS,
    "read-pack": PACKS,
    "list": LISTINGS,
    "delete": SMALL + PACKS,
}


class Recording(Forwarding):
    """Keeps the keys that are written; `dies_at` PUTs raise as if the process were killed."""

    def __init__(self, inner: Objects, dies_at: int = 10**9) -> None:
        super().__init__(inner)
        self.keys: list[str] = []
        self.dies_at = dies_at

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        self.keys.append(key)
        super().put(key, data, sha256)
        if len(self.keys) == self.dies_at:
            raise KeyboardInterrupt

    def delete(self, key: str) -> None:
        if len(self.keys) >= self.dies_at:
            raise StoreDown("the process is no more")
        super().delete(key)


def test_each_step_is_timed_and_nothing_is_left() -> None:
    objects = Recording(MemoryObjects())
    objects.put("packs/60000/other", b"x")
    times = measure_steps(objects)
    assert {step: each.count for step, each in times.items()} == COUNTS
    assert all(0 <= each.p50 <= each.p99 for each in times.values())
    assert [info.key for info in objects.list("")] == ["packs/60000/other"]


def test_every_job_knows_the_objects() -> None:
    objects = Recording(MemoryObjects())
    measure_steps(objects)
    assert len(objects.keys) == SMALL + PACKS
    for key in objects.keys:
        assert is_probe(key)
        assert of_one_site(key)
        assert not foreign(key)


def test_the_next_run_deletes_what_a_killed_one_left() -> None:
    objects = MemoryObjects()
    with pytest.raises(StoreDown):
        measure_steps(Recording(objects, dies_at=SMALL + 2))
    left = [info.key for info in objects.list("")]
    assert len(left) == SMALL + 2
    measure_steps(objects)
    assert [info.key for info in objects.list("")] == left, "it may belong to a run that goes on"
    objects.put(f"{PROBES}timed/notes.txt", b"somebody else's")
    measure_steps(Later(objects))
    assert [info.key for info in objects.list("")] == [f"{PROBES}timed/notes.txt"]


class Later(Forwarding):
    """A store whose clock is an hour ahead of what it holds."""

    def now(self) -> datetime:
        return super().now() + LEFT + timedelta(seconds=1)


class Wrong(Forwarding):
    """A store that returns other bytes, or lists too little."""

    def __init__(self, what: str) -> None:
        super().__init__(MemoryObjects())
        self.what = what

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        data = super().get(key, start, length)
        return data[:-1] + bytes([data[-1] ^ 1]) if self.what == "bytes" else data

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        every = list(super().list(prefix, after))
        return iter(every[1:] if self.what == "listing" else every)


@pytest.mark.parametrize(
    ("what", "why"), [("bytes", "other bytes than were written"), ("listing", "a listing lacks")]
)
def test_a_wrong_answer_is_an_error_and_nothing_is_left(what: str, why: str) -> None:
    objects = Wrong(what)
    with pytest.raises(Damaged, match=why):
        measure_steps(objects)
    objects.what = ""
    assert not list(objects.list(""))


def test_it_works_with_ceph(bucket: Settings) -> None:
    objects = open_objects(bucket)
    assert {step: each.count for step, each in measure_steps(objects).items()} == COUNTS
    assert not list(objects.list(PROBES))
