"""Packs are asked for by name, or by listing the nights of the names: never by listing all."""

from collections.abc import Iterator

import pytest

from stampede.errors import StoreDown
from stampede.store.integrity import referenced_packs
from stampede.store.integrity.referenced_packs import FEW_PACKS, NamedPacks
from stampede.store.integrity.references import check_packs
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.runs.schema import CUTOUT_PACKS
from tests.support.store.two_sites import TODAY, put_all
from tests.support.store.watched_objects import Forwarding, Watched


def key(night: int, number: int) -> str:
    return f"packs/{night}/{number:032x}.parquet"


@pytest.fixture
def watched() -> Watched:
    """Three nights of a hundred packs, each as long as its number."""
    objects = MemoryObjects()
    for night in range(60000, 60003):
        for number in range(100):
            objects.put(key(night, number), bytes(number))
    return Watched(objects)


def test_a_pack_reaches_its_length_and_no_further(watched: Watched) -> None:
    packs = NamedPacks(watched)
    for number in range(100):
        assert packs.reach(key(60001, number), number)
        assert not packs.reach(key(60001, number), number + 1)
    assert packs.reach(key(60001, 0))
    assert not packs.reach(key(60001, 100))
    assert not packs.reach(key(59999, 0))


def test_a_few_packs_are_asked_for_one_by_one(watched: Watched) -> None:
    packs = NamedPacks(watched)
    asked = [key(night, number) for night in (60000, 60002) for number in range(FEW_PACKS)]
    assert all(map(packs.reach, asked))
    assert watched.calls == [("head", each) for each in asked]


def test_of_many_packs_the_night_is_listed_once(watched: Watched) -> None:
    packs = NamedPacks(watched)
    assert all(packs.reach(key(60001, number)) for number in range(100))
    assert all(packs.reach(key(60001, number)) for number in range(100))
    assert watched.count("head") == FEW_PACKS
    assert {each for operation, each in watched.calls if operation == "list"} == {"packs/60001/"}
    assert watched.count("list") == 51  # of two keys, and one that shows the end


def test_only_some_listings_are_kept(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referenced_packs, "MOST_NIGHTS", 2)
    packs = NamedPacks(watched)
    for _ in range(2):
        for night in range(60000, 60003):
            assert all(packs.reach(key(night, number)) for number in range(100))
    assert watched.count("list") == 2 * 3 * 51


def test_an_audit_asks_only_for_packs_that_rows_name() -> None:
    objects = MemoryObjects()
    packs = [put_all(objects, range(2 * n, 2 * n + 2), TODAY - n).key for n in range(5)]
    for night in range(60000, 60050):
        objects.put(key(night, 0), b"no row points here")
    objects.delete(packs[3])
    watched = Watched(objects)
    assert check_packs(watched, CUTOUT_PACKS).lost == [packs[3]]
    assert {each for what, each in watched.calls if what == "head"} == set(packs)
    listed = {each for what, each in watched.calls if what == "list"}
    assert listed == {"tables/cutouts/", "checkpoints/cutouts/"}


def test_a_pack_that_the_store_cannot_read_is_listed() -> None:
    class Bad(Forwarding):
        def head(self, key: str) -> ObjectInfo:
            raise StoreDown(key)

    class Down(Bad):
        def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
            raise StoreDown(prefix)

    objects = MemoryObjects()
    objects.put(key(60000, 7), b"1234567")
    assert NamedPacks(Bad(objects)).reach(key(60000, 7), 7)
    with pytest.raises(StoreDown):
        NamedPacks(Down(objects)).reach(key(60000, 7), 7)
