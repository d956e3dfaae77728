"""Orphans: only a pack whose every row is held elsewhere, byte for byte, is proven to be one."""

import random
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest
from isal import isal_zlib

from stampede.alerts.columns import CUTOUT, KINDS
from stampede.errors import StoreDown
from stampede.handlers.reconcile.findings import Findings
from stampede.handlers.reconcile.repair import Repairer
from stampede.store.integrity.orphans import Orphans
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import Pack, read_rows, write_pack
from stampede.store.runs.schema import CUTOUTS
from stampede.store.tables.table import Table
from tests.support.store import rows
from tests.support.store.watched_objects import Failing, Watched

NO_GRACE = timedelta()


def image(alert_id: int, kind: str) -> bytes:
    return b"%d %s" % (alert_id, kind.encode()) * 20


def put(
    objects: Objects,
    ids: Iterable[int],
    images: Callable[[int, str], bytes | None] = image,
    first: int = 0,
    indexed: bool = True,
) -> Pack:
    """Store a pack, and its run if it is `indexed`; an alert's offset is its id and `first`."""
    ids = list(ids)
    cutouts = [rows.cutout(each, kind, images(each, kind)) for each in ids for kind in KINDS]
    coverage = Coverage.of({("alerts", 0): [first + each for each in ids]})
    pack = write_pack(rows.table(cutouts, CUTOUT), coverage)
    objects.put(pack.key, pack.data)
    if indexed:
        Table(objects, CUTOUTS, threads=1).append(pack.locations, coverage)
    return pack


def twice(objects: Objects, images: Callable[[int, str], bytes | None] = image) -> tuple[str, str]:
    """Alerts 0 to 3 delivered twice, the second time with others: the losing pack, the other."""
    first = put(objects, range(4)).key
    for other in range(4, 99):
        memory = MemoryObjects()
        if put(memory, [*range(4), other], images).key > first:
            return first, put(objects, [*range(4), other], images).key
    raise AssertionError


def proven(objects: Objects, key: str, grace: timedelta = NO_GRACE) -> bool:
    orphans = Orphans(objects, grace)
    try:
        return orphans.proven(key)
    finally:
        orphans.close()


def test_alerts_delivered_twice() -> None:
    objects = MemoryObjects()
    losing, winning = twice(objects)
    assert proven(objects, losing)
    assert not proven(objects, winning)
    assert not proven(objects, losing, timedelta(hours=1))
    assert not proven(objects, losing.replace(losing[-20:-12], "00000000"))


def three_packs(*sites: MemoryObjects) -> tuple[str, str, str]:
    """Alerts 0 to 3 in two packs, and what the winning one has besides in a third, lesser one.

    The keys of the losing pack, of the winning pack and of the run of the winning pack.
    """
    for other in range(4, 999):
        memory = MemoryObjects()
        losing, winning = put(memory, range(4)).key, put(memory, [*range(4), other]).key
        if winning > max(losing, put(memory, [other, other + 1]).key):
            for site in sites:
                put(site, range(4))
                put(site, [other, other + 1])
                before = {info.key for info in site.list("tables/")}
                put(site, [*range(4), other])
                [run] = {info.key for info in site.list("tables/")} - before
            return losing, winning, run
    raise AssertionError


def test_a_winning_pack_is_no_orphan_while_its_run_cannot_be_read() -> None:
    """Readers get its rows from the other packs meanwhile; then they would point to nothing."""
    objects = MemoryObjects()
    losing, winning, run = three_packs(objects)
    assert proven(objects, losing)
    down = Failing(objects, StoreDown, lambda key, _: key == run)
    assert not proven(down, winning)
    assert not proven(down, losing)  # proof needs all runs
    objects.delete(run)
    assert not proven(objects, winning)  # its run may be written yet


def test_a_winning_pack_that_the_first_site_lost_is_copied_back() -> None:
    """Its run has not been copied to the second site, so there the others win."""
    first, second = MemoryObjects(), MemoryObjects()
    _, winning, run = three_packs(first, second)
    second.delete(run)
    pack = first.get(winning)
    first.delete(winning)
    findings = Findings(True, lambda finding: None)
    repairer = Repairer(first, second, findings, True, lambda key: False, follow=NO_GRACE)
    repairer.repair()
    repairer.close()
    assert dict(findings.counts) == {"lost": 1}
    assert first.get(winning) == second.get(winning) == pack


def test_an_alert_without_images() -> None:
    objects = MemoryObjects()
    losing, _ = twice(objects)
    bare = put(objects, [7], lambda *_: None).key
    assert proven(objects, losing)
    assert not proven(objects, bare)


def test_the_winner_is_young() -> None:
    class Aged(MemoryObjects):
        def head(self, key: str):
            info = super().head(key)
            return info._replace(modified=info.modified - age.get(key, timedelta()))

    age: dict[str, timedelta] = {}
    objects = Aged()
    losing, winning = twice(objects)
    age[losing] = timedelta(days=8)
    assert not proven(objects, losing, timedelta(days=7))
    age[winning] = timedelta(days=8)
    assert proven(objects, losing, timedelta(days=7))


@pytest.mark.parametrize("fault", ["lost", "flipped", "cut", "unreadable"])
def test_the_winner_cannot_be_read(fault: str) -> None:
    objects: Objects = MemoryObjects()
    losing, winning = twice(objects)
    data = objects.get(winning)
    if fault == "lost":
        objects.delete(winning)
    elif fault == "flipped":
        objects.put(winning, data[:30] + bytes([data[30] ^ 1]) + data[31:])
    elif fault == "cut":
        objects.put(winning, data[:-1])
    else:
        objects = Failing(objects, StoreDown, lambda key, _: key == winning)
    assert not proven(objects, losing)


def test_a_store_that_is_down_is_an_error() -> None:
    objects = MemoryObjects()
    losing, _ = twice(objects)
    with pytest.raises(StoreDown):
        proven(Failing(objects, StoreDown), losing)


def test_another_version_of_an_alert() -> None:
    objects = MemoryObjects()
    losing, _ = twice(objects, lambda number, kind: image(number, kind) + b"!" * (number == 2))
    assert not proven(objects, losing)


def test_another_version_with_the_same_length_and_crc32() -> None:
    """A CRC-32 is easily forged: bytes decide."""

    def forged(number: int, kind: str) -> bytes:
        right = image(number, kind)
        other = b"?" + right[1:-4]
        return other + tail(isal_zlib.crc32(other), isal_zlib.crc32(right))

    assert isal_zlib.crc32(forged(2, "science")) == isal_zlib.crc32(image(2, "science"))
    objects = MemoryObjects()
    losing, _ = twice(
        objects, lambda number, kind: (forged if number == 2 else image)(number, kind)
    )
    assert not proven(objects, losing)


def tail(before: int, wanted: int) -> bytes:
    """Four bytes that turn a CRC-32 into another: the steps of its table, backwards."""
    table = [entry(number) for number in range(256)]
    by_top = {each >> 24: number for number, each in enumerate(table)}
    state, numbers = wanted ^ 0xFFFFFFFF, []
    for _ in range(4):
        numbers.append(by_top[state >> 24])
        state = ((state ^ table[numbers[-1]]) << 8) & 0xFFFFFFFF
    state, found = before ^ 0xFFFFFFFF, bytearray()
    for number in reversed(numbers):
        found.append((state ^ number) & 0xFF)
        state = (state >> 8) ^ table[number]
    return bytes(found)


def entry(number: int) -> int:
    for _ in range(8):
        number = (number >> 1) ^ (0xEDB88320 if number & 1 else 0)
    return number


def test_offsets_that_the_table_lacks() -> None:
    """The alerts came a second time, under other offsets, and their run was never written."""
    objects = MemoryObjects()
    pack = put(objects, range(4), first=100, indexed=False)
    while put(objects, range(4 + len(list(objects.list("packs/"))))).key < pack.key:
        pass
    assert not proven(objects, pack.key)
    Table(objects, CUTOUTS).append(pack.locations, Coverage.of({("alerts", 0): range(100, 104)}))
    assert proven(objects, pack.key)


def test_packs_that_win_over_each_other() -> None:
    objects = MemoryObjects()
    packs = [put(objects, range(start, start + 4)).key for start in range(0, 12, 2)]
    table = Table(objects, CUTOUTS)
    table.refresh()
    named = set(table.lookup(list(range(14)))["pack"].to_pylist())
    assert {key for key in packs if not proven(objects, key)} == named


def test_a_pack_written_again_meanwhile() -> None:
    objects = MemoryObjects()
    losing, winning = twice(objects)
    data = objects.get(losing)

    def write_again(number: int) -> None:
        if watched.calls[number] == ("get", winning):
            objects.put(losing, data)

    watched = Watched(objects, write_again)
    assert not proven(watched, losing)


@pytest.mark.long
def test_several_that_delete_at_once_leave_every_alert() -> None:
    assert sum(map(deleted_in_a_race, range(10))) > 5


def deleted_in_a_race(seed: int) -> int:
    """Deliver and delete between any two requests of a deletion; how many packs were deleted."""
    dice, objects = random.Random(seed), MemoryObjects()
    stored, left, deleted = set[int](), 12, 0
    one_at_a_time = threading.Lock()  # requests come from several threads

    def deliver() -> None:
        start = dice.randrange(6)
        ids = range(start, start + dice.randint(1, 4))
        put(objects, ids)
        stored.update(ids)

    def delete(through: Objects) -> None:
        nonlocal deleted
        key = dice.choice([info.key for info in objects.list("packs/")])
        if proven(through, key):
            through.delete(key)
            deleted += 1
        table = Table(objects, CUTOUTS, threads=1)
        table.refresh()
        found = table.lookup(sorted(stored)).to_pylist()
        assert {row["alert_id"] for row in found} == stored
        for pack in {row["pack"] for row in found}:
            ids = set(read_rows(objects.get(pack), pack)[0]["alert_id"].to_pylist())
            assert ids >= {row["alert_id"] for row in found if row["pack"] == pack}

    def between(_: int) -> None:
        nonlocal left
        with one_at_a_time:
            if left and dice.random() < 0.15:
                left -= 1
                dice.choice([deliver, lambda: delete(objects)])()

    for _ in range(5):
        deliver()
    for _ in range(4):
        delete(Watched(objects, between))
    return deleted
