"""The second site is always consistent: no run before its packs, no offset before its bytes."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from stampede.alerts.columns import CUTOUT
from stampede.errors import Damaged, StoreDown
from stampede.store.compaction.compact import Policy, compact
from stampede.store.compaction.garbage_collection import unneeded_at_second_site
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.replication.copy import Copied
from stampede.store.replication.replica import FEW_PACKS, Replica, packs_of
from stampede.store.replication.site_local import of_one_site
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.table import Table
from tests.support.store import rows
from tests.support.store.located import stored_image
from tests.support.store.watched_objects import Failing, Watched

NOW = datetime(2026, 11, 20, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
GRACE = timedelta(minutes=5)
EACH = 4  # alerts in a flush


def store() -> MemoryObjects:
    return MemoryObjects(lambda: NOW)


def flush(objects: Objects, number: int) -> tuple[str, str]:
    """Store a batch as `cutouts` and `lightcurves` do; the keys of the pack and of its run."""
    ids = range(number * EACH, (number + 1) * EACH)
    coverage = Coverage.of({("alerts", 0): ids})
    cutouts = [rows.cutout(i, kind, f"{kind} {i}".encode()) for i in ids for kind in "ab"]
    pack = write_pack(rows.table(cutouts, CUTOUT), coverage)
    objects.put(pack.key, pack.data)
    run = Table(objects, CUTOUTS).append(pack.locations, coverage)
    points = rows.table(rows.detection("1", i) for i in ids)
    Table(objects, DETECTIONS).append(points, coverage)
    return pack.key, run


def keys(objects: Objects, prefix: str = "") -> list[str]:
    return [info.key for info in objects.list(prefix)]


def check(site: Objects) -> Coverage:
    """Check all that a reader may rely on at a site; its coverage."""
    table = Table(site, CUTOUTS, threads=1)
    alerts = {i for low, high in table.coverage().intervals("alerts", 0) for i in range(low, high)}
    found = table.lookup(sorted(alerts)).to_pylist()
    assert {row["alert_id"] for row in found} == alerts
    for row in found:
        assert stored_image(site, row) == f"{row['kind']} {row['alert_id']}".encode()
    return table.coverage()


def everything(count: int) -> Coverage:
    return Coverage.of({("alerts", 0): range(count * EACH)})


def test_the_packs_of_a_run_are_copied_first() -> None:
    source, target = store(), store()
    pack, run = flush(source, 0)
    assert packs_of(source, source.head(run)) == {pack}
    watched = Watched(target)
    assert Replica(source, watched, 1).copy(run).moved
    assert [key for operation, key in watched.calls if operation == "put"] == [pack, run]
    assert check(target) == everything(1)


def test_a_merged_run_is_copied_with_all_packs_and_no_input() -> None:
    source, target = store(), store()
    for number in range(4):
        flush(source, number)
    compact(Table(source, CUTOUTS), NOW, Policy(fanout=4))
    [merged] = [run.key for run in Table(source, CUTOUTS).runs()]
    Replica(source, target, 1).copy(merged)
    assert check(target) == everything(4)
    assert keys(target, "tables/cutouts/") == [merged]


@pytest.mark.long
def test_a_merged_run_whose_packs_are_there_takes_few_requests() -> None:
    """A merged run may point into thousands of packs, which were copied before."""
    runs = 4 * FEW_PACKS
    source, target = store(), store()
    packs = [flush(source, number)[0] for number in range(runs)]
    for pack in packs[: -FEW_PACKS - 3]:
        Replica(source, target, 1).copy(pack)
    compact(Table(source, CUTOUTS), NOW, Policy(fanout=4, major=True))
    [merged] = [run.key for run in Table(source, CUTOUTS).runs()]
    watched = Watched(source)
    Replica(watched, target, 4).copy(merged)
    assert check(target) == everything(runs)
    asked = [key for operation, key in watched.calls if operation == "head"]
    assert sorted(asked) == sorted([*packs[-FEW_PACKS - 3 :], merged, merged])


def test_catching_up_copies_everything_once() -> None:
    source, target = store(), store()
    for number in range(5):
        flush(source, number)
    source.put("deadletters/cutouts/x.parquet", b"a letter")
    source.put("expected/files-1", b"7")
    copied_keys: list[str] = []
    replica = Replica(source, target, 3)
    assert {info.key for info in replica.missing()} == set(keys(source))
    replica.catch_up(lambda info, copied: copied_keys.append(info.key))
    assert sorted(copied_keys) == keys(source) == keys(target)
    assert list(replica.missing()) == []
    replica.catch_up(lambda info, copied: pytest.fail(info.key))


def test_inputs_of_a_merged_run_are_not_copied() -> None:
    """This also holds if the second site merged them itself."""
    source, target = store(), store()
    for number in range(4):
        flush(source, number)
    Replica(source, target, 2).catch_up()
    compact(Table(target, CUTOUTS), LATER, Policy(fanout=4))
    compact(Table(target, CUTOUTS), LATER, Policy(fanout=4, grace=timedelta()))
    assert keys(target, "tables/cutouts/0000") == []
    assert list(Replica(source, target, 2).missing()) == []
    assert check(target) == everything(4)


def test_merged_runs_are_deleted_after_the_grace() -> None:
    source, target = store(), store()
    for number in range(4):
        flush(source, number)
    Replica(source, target, 2).catch_up()
    inputs = keys(target, "tables/cutouts/")
    compact(Table(source, CUTOUTS), NOW, Policy(fanout=4))
    Replica(source, target, 2).catch_up()
    assert list(unneeded_at_second_site(source, target, NOW, GRACE)) == []
    assert list(unneeded_at_second_site(source, target, LATER, GRACE)) == inputs


def test_a_half_copied_run_stays_while_the_first_site_has_it() -> None:
    source, target = store(), store()
    for number in range(4):
        flush(source, number)
    compact(Table(source, DETECTIONS), NOW, Policy(fanout=4, run_rows=2, slice_rows=2))
    compact(Table(source, CUTOUTS), NOW, Policy(fanout=4, run_rows=8, slice_rows=8))
    first, *rest = keys(source, "tables/cutouts/0001")
    assert rest
    Replica(source, target, 1).copy(first)
    assert check(target) == Coverage.of({})
    assert list(unneeded_at_second_site(source, target, LATER, GRACE)) == []
    for key in (first, *rest):
        source.delete(key)
    # The first site has none of it any more, so these may be the last copies of some rows.
    assert list(unneeded_at_second_site(source, target, LATER, GRACE)) == []
    Replica(source, target, 1).catch_up()  # the inputs, which hold the same rows
    assert list(unneeded_at_second_site(source, target, NOW, GRACE)) == []
    assert list(unneeded_at_second_site(source, target, LATER, GRACE)) == [first]


def test_objects_past_their_retention_are_not_copied() -> None:
    source, target = store(), store()
    pack, run = flush(source, 0)
    replica = Replica(source, target, 1, lambda key: key.startswith("packs/"))
    assert replica.copy(pack) == Copied(0, False)
    replica.copy(run)
    replica.catch_up()
    assert keys(target) == keys(source, "tables/")
    assert list(replica.missing()) == []


def test_a_run_that_was_merged_meanwhile_is_no_error() -> None:
    source, target = store(), store()
    _, run = flush(source, 0)
    source.delete(run)
    assert Replica(source, target, 1).copy(run) == Copied(0, False)


def test_a_damaged_pack_stops_only_the_runs_that_point_into_it() -> None:
    source, target = store(), store()
    bad, bad_run = flush(source, 0)
    good, good_run = flush(source, 1)
    source.put(bad, source.get(bad)[:-1] + b"?")
    source.put("zz", b"anything else")
    replica = Replica(source, target, 2)
    with pytest.raises(Damaged, match=bad):
        replica.catch_up()
    assert {info.key for info in replica.missing()} == {bad, bad_run}
    assert {good, good_run, "zz"} <= set(keys(target))
    assert check(target) == Coverage.of({("alerts", 0): range(EACH, 2 * EACH)})
    source.delete(bad)  # without the damaged object everything else is copied
    replica.catch_up()
    assert list(replica.missing()) == []


@pytest.mark.parametrize("where", ["source", "target"])
def test_a_pack_that_a_site_does_not_give_stops_only_the_runs_that_point_into_it(
    where: str,
) -> None:
    source, target = store(), store()
    flushed = [flush(source, number) for number in range(6)]
    bad, bad_run = flushed[0]
    source.put("zz", b"anything else")
    target.put("aa", b"what it has already")
    if where == "target":
        target.put(bad, b"?")
    sites = {"source": source, "target": target}
    failing = sites | {where: Failing(sites[where], StoreDown, lambda key, _: key == bad)}
    replica = Replica(failing["source"], failing["target"], 2)
    with pytest.raises(Damaged, match=bad):
        replica.catch_up()
    assert {info.key for info in replica.missing()} == {bad, bad_run}
    for pack, run in flushed[1:]:
        assert {pack, run, "zz"} <= set(keys(target))
    assert check(target) == Coverage.of({("alerts", 0): range(EACH, 6 * EACH)})
    with pytest.raises(StoreDown):  # so an event is tried again
        replica.copy(bad_run)
    Replica(source, target, 2).catch_up()
    assert check(target) == everything(6)


def test_a_site_that_gives_nothing_is_down() -> None:
    source, target = store(), store()
    flush(source, 0)
    with pytest.raises(StoreDown):
        Replica(Failing(source, StoreDown), target, 2).catch_up()
    assert not keys(target)


def test_nothing_is_written_to_the_first_site() -> None:
    """So a second site can pull with a key that only allows reading."""
    source, target = Watched(store()), store()
    _, run = flush(source, 0)
    compact(Table(source, CUTOUTS), NOW, Policy(major=True))
    source.calls.clear()
    replica = Replica(source, target, 2)
    replica.copy(run)
    replica.catch_up()
    list(unneeded_at_second_site(source, target, LATER, GRACE))
    assert [key for key in keys(source.inner) if not of_one_site(key)] == keys(target)
    assert {operation for operation, _ in source.calls} == {"get", "head", "list"}


def test_an_object_that_should_be_a_run_is_damaged() -> None:
    source, target = store(), store()
    key = f"tables/cutouts/0000-{32 * '0'}.parquet"
    source.put(key, b"not Parquet, whatever its name says")
    with pytest.raises(Damaged, match="is not Parquet"):
        Replica(source, target, 1).copy(key)
    assert keys(target) == []


def test_an_event_that_comes_again_costs_two_heads() -> None:
    source, target = Watched(store()), Watched(store())
    pack, run = flush(source, 0)
    replica = Replica(source, target, 1)
    for key in (pack, run):
        replica.copy(key)
        source.calls.clear()
        target.calls.clear()
        assert not replica.copy(key).moved
        assert source.calls == target.calls == [("head", key)]


def test_a_listing_is_not_held_in_memory() -> None:
    source, target = store(), store()
    for number in range(300):
        source.put(f"packs/60000/{number}", b"x")
    watched = Watched(source)
    missing = Replica(watched, target, 1).missing_objects()
    next(missing)
    assert watched.count("list") < 5
    assert sum(1 for _ in missing) == 299


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_the_second_site_is_always_consistent(seed: int) -> None:
    """Flushes, compactions and sweeps at the first site while a copier runs, dies, runs again.

    Anything may happen at the first site between two requests. Before every write the whole
    second site is checked, and its coverage never shrinks.
    """
    dice = random.Random(seed)
    source, inner = store(), store()
    flushed, covered, busy = 0, Coverage.of({}), False

    def live(_: int) -> None:
        nonlocal flushed, busy
        if busy:
            return
        busy = True
        choice = dice.random()
        if choice < 0.06 and flushed < 40:
            flush(source, flushed)
            flushed += 1
        elif choice < 0.1:
            spec = dice.choice([CUTOUTS, DETECTIONS])
            grace = dice.choice([timedelta(), timedelta(days=1)])
            cut = dice.choice([8, 1000])
            table = Table(source, spec, threads=1)
            compact(table, NOW, Policy(fanout=3, run_rows=cut, slice_rows=cut, grace=grace))
        busy = False

    def look(number: int) -> None:
        nonlocal covered
        live(number)
        if target.calls[-1][0] in ("put", "delete"):
            now = check(inner)
            assert not covered - now
            covered = now

    for _ in range(6):
        flush(source, flushed)
        flushed += 1
    for _ in range(8):
        target = Watched(inner, look, crash_at=dice.choice([None, 1, 5]), torn=dice.random() < 0.5)
        replica = Replica(Watched(source, live), target, 1)
        try:
            if dice.random() < 0.5:
                replica.catch_up()
            else:
                for key in dice.sample(keys(source), 4):
                    replica.copy(key)
            for key in unneeded_at_second_site(source, target, LATER, GRACE):
                target.delete(key)
        except StoreDown:
            pass
        replica.close()
    Replica(source, inner, 2).catch_up()
    assert check(inner) == check(source) == everything(flushed)
    assert Table(inner, DETECTIONS).coverage() == everything(flushed)
    points = [Table(site, DETECTIONS).lookup(["1"]) for site in (source, inner)]
    assert points[0].equals(points[1])
    assert isinstance(points[0], pa.Table)
    assert points[0].num_rows == flushed * EACH


@pytest.mark.long
def test_a_site_that_only_pulls_keeps_no_runs_that_the_first_merged_long_ago() -> None:
    """Twelve hours: a batch in 5 minutes, a compaction in 10, a pull in 50."""
    now = NOW
    source, target = MemoryObjects(lambda: now), MemoryObjects(lambda: now)
    number = 0
    for minute in range(5, 12 * 60 + 1, 5):
        now += timedelta(minutes=5)
        flush(source, number)
        number += 1
        if minute % 10 == 0:
            for spec in (CUTOUTS, DETECTIONS):
                compact(Table(source, spec, threads=1), now, Policy(fanout=2, grace=GRACE))
        if minute % 50 == 0:
            Replica(source, target, 1).catch_up()
            for key in unneeded_at_second_site(source, target, now, GRACE):
                target.delete(key)
    for _ in range(3):
        Replica(source, target, 1).catch_up()
        now += GRACE
        for spec in (CUTOUTS, DETECTIONS):
            compact(Table(source, spec, threads=1), now, Policy(fanout=2, grace=GRACE))
        for key in unneeded_at_second_site(source, target, now, GRACE):
            target.delete(key)
    for spec in (CUTOUTS, DETECTIONS):
        assert keys(target, f"tables/{spec.name}") == keys(source, f"tables/{spec.name}")
    assert check(source) == check(target) == everything(number)


def test_a_run_that_was_lost_at_the_first_site_stays_at_the_second() -> None:
    source, target = store(), store()
    _, lost = flush(source, 0)
    flush(source, 1)
    Replica(source, target, 1).catch_up()
    source.delete(lost)
    assert list(unneeded_at_second_site(source, target, LATER, GRACE)) == []
