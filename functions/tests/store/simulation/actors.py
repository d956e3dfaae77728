"""What the processes around a store do, each with the code that runs in production."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from stampede.alerts.columns import CUTOUT
from stampede.config.settings import Settings
from stampede.deadletters.dead_letter import write_letters
from stampede.deadletters.purge import purge
from stampede.deadletters.reader import DeadLetterReader
from stampede.deadletters.stored import has_offset, stored_offsets
from stampede.errors import Damaged, NotFound, StoreDown
from stampede.events.cloudevents.event import Event
from stampede.handlers.scrub.delete_orphans import delete_orphans
from stampede.store.compaction.compact import Policy, compact
from stampede.store.compaction.garbage_collection import unneeded_at_second_site
from stampede.store.compaction.image_merge import ImageMerger
from stampede.store.compaction.night_plan import due_merges
from stampede.store.integrity.unindexed_packs import PackIndexCheck, index
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.merged_inputs import MergedInputs
from stampede.store.packs.pack import write_pack
from stampede.store.replication.replica import Replica
from stampede.store.runs.schema import CUTOUT_PACKS, CUTOUTS
from stampede.store.tables.checkpoint import (
    CHECKPOINTS,
    number_of,
    parse_checkpoint,
    write_checkpoint,
)
from stampede.store.tables.table import Table
from tests.store.simulation.contents import ALERTS, Version, alert_of
from tests.store.simulation.requests import Connection, Faults
from tests.store.simulation.scheduler import Actor
from tests.store.simulation.world import PACKS, Site, Violation, World
from tests.support.store.located import stored_image
from tests.support.store.rows import cutout, table

TOPIC = "alerts"
CACHE = 1 << 20
GRACES = (timedelta(0), timedelta(0), timedelta(minutes=5))
# A wrong clock: seconds fast or slow, or years.
SKEWS = (timedelta(0), timedelta(0), timedelta(minutes=4), timedelta(-9), timedelta(days=3000))


class Processes:
    """Makes the actors of one simulation."""

    def __init__(self, world: World, faults: Faults) -> None:
        self.world, self.faults = world, faults
        self.chance = world.scheduler.chance
        self._graces = self.chance.choice((GRACES, GRACES[:1]))
        self._last_offset = 0
        self._batches: list[list[int]] = []  # not acknowledged yet; any writer may get them
        self._refused: list[int] = []  # offsets of dead letters, to be replayed

    def connect(self, actor: Actor, site: Site, reads_back: bool = False) -> Connection:
        """A connection with this simulation's faults."""
        return Connection(self.world, site, actor, self.faults, reads_back)

    def add(self, kind: str, number: int) -> None:
        """Start an actor: `kind` is the name of one of the methods below."""
        behave: Callable[[Actor], None] = getattr(self, kind)
        skew = self.chance.choice(SKEWS)
        self.world.scheduler.actors.append(
            Actor(self.world.scheduler, f"{kind}{number}", behave, skew)
        )

    def writer(self, actor: Actor) -> None:
        """Stores batches: the pack, then the run; a batch that failed comes again, regrouped."""
        self._write(actor, self._next_batch)

    def repeater(self, actor: Actor) -> None:
        """Stores events that came before, in other batches: a sender that got no response."""
        self._write(actor, self._old_batch)

    def _write(self, actor: Actor, next_batch: Callable[[], list[int]]) -> None:
        objects = self.connect(actor, self.world.first)
        while True:
            offsets = next_batch()
            try:
                rows = store_batch(self.world, objects, offsets)
            except StoreDown:
                self._batches.append(offsets)
                continue
            self.world.acknowledge(rows, offsets)
            # Writers wait for compactors, or these would only ever list.
            crowd = len(self.world.first.view().runs)
            actor.sleep(self.chance.randrange(10 + 10 * crowd * crowd))

    def sweeper(self, actor: Actor) -> None:
        """A compactor that finds nothing to merge, only old runs to delete."""
        self.compactor(actor, fanouts=(1000,), major=0.0)

    def compactor(
        self, actor: Actor, fanouts: tuple[int, ...] = (2, 3), major: float = 0.3
    ) -> None:
        """Compacts, with a clock that may be wrong."""
        objects = self.connect(actor, self.world.first, reads_back=True)
        one: Table | None = None
        while True:
            if one is None or self.chance.random() < 0.3:
                one = Table(objects, CUTOUTS, self.chance.choice((0, CACHE, CACHE)), threads=1)
            self._compact(actor, one, self.chance.choice(fanouts), self.chance.random() < major)
            actor.sleep(self.chance.choice((0, 0, 30)))

    def reader(self, actor: Actor) -> None:
        """Looks up alerts at a site, again and again with one table, and checks the responses."""
        site = self.chance.choice((self.world.first, self.world.first, self.world.second))
        objects = self.connect(actor, site)
        one = Table(objects, CUTOUTS, self.chance.choice((0, CACHE, CACHE)), threads=1)
        while True:
            try:
                read_once(self.world, site, objects, one)
            except StoreDown:
                continue  # runs vanish faster than they can be listed, or the store failed

    def replicator(self, actor: Actor) -> None:
        """Copies what the first site announces, and at times all that is missing."""
        source = self.connect(actor, self.world.first)
        target = self.connect(actor, self.world.second, reads_back=True)
        replica = Replica(source, target, 1)
        while True:
            try:
                if not self.world.events or self.chance.random() < 0.1:
                    replica.catch_up()
                else:
                    events = self.world.events
                    key = events.pop(self.chance.randrange(len(events)))
                    try:
                        replica.copy(key)
                    except StoreDown:
                        events.append(key)
            except (Damaged, StoreDown):  # requests for an object that failed twice
                continue

    def reconciler(self, actor: Actor) -> None:
        """Indexes packs that have no run; cleans up and writes checkpoints at the second site."""
        first = self.connect(actor, self.world.first)
        second = self.connect(actor, self.world.second)
        while True:
            try:
                check = PackIndexCheck(first, CUTOUTS)
                for info in check.lacking(first.list(PACKS), _failed_twice):
                    try:
                        index(first, info.key)
                    except Damaged:
                        _failed_twice(info.key)
                now, grace = self.world.scheduler.now + actor.skew, self.chance.choice(self._graces)
                for key in unneeded_at_second_site(first, second, now, grace):
                    second.delete(key)
                Table(second, CUTOUTS, threads=1).keep_checkpoint(grace)
            except (NotFound, StoreDown):
                continue

    def orphans(self, actor: Actor) -> None:
        """Deletes packs that readers do not need, as `scrub` does, with any grace."""
        objects = self.connect(actor, self.world.first)
        while True:
            days = self.chance.choice(self._graces) / timedelta(days=1)
            with suppress(StoreDown):
                keys = [info.key for info in objects.list(PACKS)]
                delete_orphans(Settings(orphan_days=days or 1e-12), objects, keys, math.inf)
            actor.sleep(self.chance.choice((0, 5, 30)))

    def merger(self, actor: Actor) -> None:
        """Merges packs of images, and deletes what was merged, as `compact` does."""
        self._merge_images(actor, self._graces)

    def keeper(self, actor: Actor) -> None:
        """Merges them too, and keeps what was merged: a second site has a day to copy it."""
        self._merge_images(actor, [timedelta(days=1)])

    def _merge_images(self, actor: Actor, graces: Sequence[timedelta]) -> None:
        objects = self.connect(actor, self.world.first)
        while True:
            kept = self.chance.choice(graces) or timedelta(microseconds=1)
            one = Table(objects, CUTOUTS, threads=1)
            merger = ImageMerger(objects, CUTOUT_PACKS, one, kept)
            with suppress(StoreDown, Damaged):
                one.refresh()
                packs = list(objects.list(PACKS))
                merged = MergedInputs(objects, kept).of(packs)
                again = {info.key for info in merged.old if merger.is_read(info)}
                for info in merged.old:
                    if info.key not in again:
                        merger.delete(info)
                for sources in due_merges(packs, merged.waiting - again):
                    merger.merge(sources)
            merger.close()
            actor.sleep(self.chance.choice((0, 5, 30)))

    def letters(self, actor: Actor) -> None:
        """Keeps dead letters, has some of them stored after all, and purges what is stored."""
        objects = self.connect(actor, self.world.first, reads_back=True)
        plain = self.connect(actor, self.world.first)
        while True:
            try:
                match self.chance.randrange(5):
                    case 0:
                        offsets = [self._take_offset() for _ in range(self.chance.randint(1, 3))]
                        key, data = write_letters("cutouts", [_letter(o) for o in offsets])
                        plain.put(key, data)
                        self.world.acknowledge_letters(offsets)
                        self._refused += offsets
                        actor.sleep(self.chance.randrange(30))
                    case 1 | 2 if self._refused:
                        place = self.chance.randrange(len(self._refused))
                        self._batches.append([self._refused.pop(place)])
                    case _:
                        purge(objects, DeadLetterReader(plain), _removable(plain))
            except (NotFound, StoreDown):
                continue

    def vandal(self, actor: Actor) -> None:
        """Somebody deletes and damages checkpoints, and brings old ones back as the newest."""
        while True:
            site = self.chance.choice((self.world.first, self.world.second))
            actor.pause("spoil", CHECKPOINTS)
            there, ever = site.keys(CHECKPOINTS), list(site.checkpoints)
            match self.chance.randrange(4):
                case 0 if there:
                    site.delete(self.chance.choice(there))
                case 1 if there:
                    site.damage(self.chance.choice(there))
                case 2 if ever:
                    key = self.chance.choice(ever)
                    site.put(key, site.checkpoints[key])
                case 3 if ever:
                    key = self.chance.choice(ever)
                    old = parse_checkpoint(key, site.checkpoints[key], CUTOUTS)
                    number = self.chance.choice((number_of(key), len(ever))) + 1
                    key, data = write_checkpoint(old.parts.values(), CUTOUTS, number, old.bucket)
                    site.put(key, memoryview(data))
            actor.sleep(self.chance.choice((5, 20, 60)))

    def _compact(self, actor: Actor, one: Table, fanout: int, major: bool) -> None:
        with suppress(StoreDown):
            compact(
                one,
                self.world.scheduler.now + actor.skew,
                Policy(
                    fanout=fanout,
                    run_rows=self.chance.choice((3, 6, 6, 100)),
                    slice_rows=3,
                    grace=self.chance.choice(self._graces),
                    major=major,
                    turn=self.chance.randrange(4),
                ),
            )

    def _next_batch(self) -> list[int]:
        if self._batches and self.chance.random() < 0.7:
            offsets = self._batches.pop(self.chance.randrange(len(self._batches)))
            if self._batches and self.chance.random() < 0.3:
                offsets += self._batches.pop()
            return sorted(set(offsets))
        offsets = [self._take_offset() for _ in range(self.chance.randint(1, 3))]
        if self.chance.random() < 0.2:  # an event that was stored before comes again
            offsets.append(self.chance.randint(1, self._last_offset))
        return sorted(set(offsets))

    def _old_batch(self) -> list[int]:
        last = self._last_offset or self._take_offset()
        latest = range(max(1, last - 3), last + 1)
        return sorted(self.chance.sample(latest, self.chance.randint(1, min(3, len(latest)))))

    def _take_offset(self) -> int:
        self._last_offset += 1
        return self._last_offset


def store_batch(world: World, objects: Objects, offsets: list[int]) -> dict[int, Version]:
    """Store the alerts at `offsets` as `cutouts` does; returns the version of each alert."""
    rows = table([cutout(alert_of(o), "science", b"%d;" % o) for o in offsets], CUTOUT)
    coverage = Coverage.of({(TOPIC, 0): offsets})
    pack = write_pack(rows, coverage)
    images = pack.locations.to_pylist()
    objects.put(pack.key, memoryview(pack.data), pack.sha256)
    Table(objects, CUTOUTS, threads=1).append(pack.locations, coverage)
    return {row["alert_id"]: (row["pack"], row["page_offset"]) for row in images}


def read_once(world: World, site: Site, objects: Connection | Site, one: Table) -> None:
    """Refresh, look up all alerts, and check the response."""
    must = dict(world.acknowledged) if site is world.first else {}
    offsets = set(world.offsets) if site is world.first else set()
    objects.honest = True
    one.refresh()
    rows = one.lookup(range(ALERTS)).to_pylist()
    covered = one.coverage()
    found = {row["alert_id"]: (row["pack"], row["page_offset"]) for row in rows}
    if len(found) < len(rows):
        raise Violation("a lookup returned one key twice")
    if made_up := set(found.values()) - world.written.keys():
        raise Violation(f"a lookup returned what was never written: {made_up}")
    for _, partition in covered.partitions():
        for start, end in covered.intervals(TOPIC, partition):
            if lacking := {alert_of(offset) for offset in range(start, end)} - found.keys():
                raise Violation(f"a reader's coverage has alerts that it cannot read: {lacking}")
    if objects.honest:
        if gone := one.listing.vanished():
            raise Violation(f"a reader takes for lost what was merged: {[run.key for run in gone]}")
        for alert, version in must.items():
            if found.get(alert, ("", -1)) < version:
                raise Violation(f"a reader misses the acknowledged row of alert {alert}")
        if missing := {o for o in offsets if (TOPIC, 0, o) not in covered}:
            raise Violation(f"a reader's coverage misses the offsets {sorted(missing)}")
    if rows:
        row = rows[0]
        version = row["pack"], row["page_offset"]
        try:
            image = stored_image(objects, row)
        except NotFound:
            if site.view().rows.get(row["alert_id"]) == version:
                raise Violation(f"a row at the {site.name} site points to no pack") from None
            return  # an orphan, deleted since: readers are given its grace, actors here are not
        if image != world.written[version]:
            raise Violation(f"{version} is another image")


def _letter(offset: int) -> Event:
    attributes = {
        "id": f"partition:0/offset:{offset}",
        "source": f"/kafkasources/simulated#{TOPIC}",
        "subject": f"partition:0#{offset}",
        "type": "dev.knative.kafka.event",
        "specversion": "1.0",
    }
    return Event(attributes, b"%d;" % offset)


def _removable(objects: Objects) -> Callable[[str, Sequence[Event]], list[bool]]:
    """Tells which dead letters' alerts are stored, as of now."""
    stored = stored_offsets(objects)
    return lambda name, events: [has_offset(stored, name, event.position) for event in events]


def _failed_twice(key: str) -> None:
    """Requests for a pack did: nothing damages packs here."""
    raise StoreDown(f"{key} cannot be read")
