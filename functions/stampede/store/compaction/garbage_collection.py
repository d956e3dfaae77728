"""Finds parts of runs that are no longer needed. docs/store.md explains why deleting is safe."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain

from stampede.errors import NotFound
from stampede.store.compaction.deletion_proof import DeletionProof
from stampede.store.compaction.superseded_copies import superseded_copies
from stampede.store.integrity.digests import same
from stampede.store.objects.object_store import Objects, find
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.run import Run, RunInfo, by_name, complete, incomplete, live, unlisted
from stampede.store.runs.run_name import RunName, prefix
from stampede.store.runs.schema import ALL_TABLES
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()


class GarbageCollector:
    """The parts of a table that may be deleted, and what is lost or damaged.

    Attributes
    ----------
    settled
        The runs that have been complete for the grace, by the name of each input.
    proof
        Asks whether runs are whole, and remembers which parts are lost or damaged.
    """

    def __init__(self, table: Table, now: datetime, grace: timedelta) -> None:
        self._table, self._now, self._grace = table, now, grace
        self._parts = table.listed()
        self._runs = complete(self._parts)
        self.proof = DeletionProof(table)
        self.settled: dict[str, list[Run]] = {}
        for run in self._runs:
            if self._old(run):
                for name in run[0].inputs:
                    self.settled.setdefault(name, []).append(run)

    def unneeded(self) -> Iterator[RunInfo]:
        """The parts to be deleted, lowest level first.

        These are the inputs of a run that has been complete for the grace and reads as it was
        stored; and the parts of a run that was left half-written before the grace, once other
        complete runs hold its offsets and its rows.

        Delete each part before taking the next: every check looks into the store at that time.
        """
        half_written = {run[0].name.whole: run for run in incomplete(self._parts)}
        abandoned: dict[Run, bool] = {}
        for part in self._parts:
            run = half_written.get(part.name.whole)
            if part.name.run in self.settled:
                if self.merged(part.name.run):
                    yield part
            elif run:
                if run not in abandoned:
                    abandoned[run] = self._abandoned(run)
                if abandoned[run]:
                    yield part

    def unreadable(self) -> Iterator[str]:
        """The keys of objects that cannot be read and are inputs as in `unneeded`.

        Their bytes prove nothing, but their names do: a merge reads all of an input, and lists its
        name only if it was whole then. Delete each object before taking the next.
        """
        readable = {part.key for part in self._parts}
        for key in self._table.quarantined():
            name = RunName.parse(key)
            if name and key not in readable and self.merged(name.run):
                yield key

    def merged(self, name: str) -> bool:
        """Whether a run that has been complete for the grace holds the run of that name."""
        return any(self.proof.stand(run) for run in self.settled.get(name, ()))

    def sound(self, runs: Iterable[Run]) -> list[Run]:
        """Those of `runs` of which nothing is in quarantine."""
        damaged = self._table.quarantined()
        return [run for run in runs if not any(part.key in damaged for part in run)]

    def _old(self, run: Run) -> bool:
        return all(part.age(self._now) >= self._grace for part in run)

    def _abandoned(self, run: Run) -> bool:
        """Whether the parts of a run that is half-written in our listing may be deleted.

        If they may not, and nothing can complete the run any more, its missing parts are damage.
        """
        if not self._old(run):
            return False
        # Our listing is stale. Re-check inputs first, then the run: only that order proves that no
        # input was deleted because this run had completed.
        footer = self._footer(run)
        if footer is None:
            return False
        needed = [name for name in footer.inputs if not self._merged_in_another_run(name)]
        there = [name for name in needed if self._exists(name)]
        objects, table = self._table.objects, self._table.spec.name
        lost = [key for key in unlisted(run, table) if find(objects, key) is None]
        if not lost or (there and there == needed):
            return False  # complete by now; or its inputs hold its rows, and it may be continued
        others = self.sound(live(self._parts))
        held = self.proof.hold(run, others, every_row=True)
        if held:
            return not there and all(self.proof.present(other) for other in others)
        for key in lost if held is False else ():
            self.proof.damaged[key] = "lost, and no other run holds all that its run held"
        return False

    def _merged_in_another_run(self, name: str) -> bool:
        return any(
            name in run[0].inputs
            and (footer := self._footer(run)) is not None
            and name in footer.inputs
            and self.proof.present(run)
            for run in self._runs
        )

    def _footer(self, run: Run) -> RunInfo | None:
        """The footer of a run's first part; None if it is damaged or gone."""
        try:
            return self.proof.footer(run)
        except NotFound:
            return None

    def _exists(self, name: str) -> bool:
        """Whether the store has any part of a run, listed or asked for by name."""
        objects, table = self._table.objects, self._table.spec.name
        level, _, digest = name.partition("-")
        keys = {part.key for part in self._parts if part.name.run == name}
        keys.add(RunName(int(level), digest).key(table))
        return next(objects.list(prefix(table) + name), None) is not None or any(
            find(objects, key) for key in keys
        )


def unneeded_at_second_site(
    source: Objects,
    target: Objects,
    now: datetime,
    grace: timedelta,
    damaged: Callable[[str], None] = lambda key: None,
    rights: Rights = EVERYTHING,
) -> Iterator[str]:
    """Keys of the parts of runs that the second site no longer needs, lowest level first.

    These are the inputs of a run that has been complete there for `grace` and reads as it was
    stored; and, after the grace, the parts of a run that the source no longer has, once runs that
    are complete at both sites hold its offsets and its rows. The source merged such a run, and
    the run that it was merged into may have been merged in turn before it was copied: then no run
    at the second site lists it as an input. Damaged copies go as `superseded_copies` says.

    Parameters
    ----------
    damaged
        Called with the key of each part that was found damaged there, or is not what a checkpoint
        says, or that the store does not give, and that stays; and of each part of the first site
        that is damaged, if therefore a damaged copy stays. The log has the reason.
    rights
        Rows of other programmes need not be held anywhere.
    """
    for spec in ALL_TABLES.values():
        first = Table(source, spec, cache_bytes=0, rights=rights)
        second = Table(target, spec, rights=rights)
        try:
            collector, deleted = GarbageCollector(second, now, grace), set()
            undecided: dict[str, str] = {}
            for key in chain(
                _unneeded_copies(collector, first, second, now, grace),
                superseded_copies(first, second, now, grace, undecided),
            ):
                deleted.add(key)
                yield key
            for key, why in (collector.proof.damaged | undecided).items():
                if key not in deleted:
                    log.error("damaged", key=key, why=why)
                    damaged(key)
        finally:
            first.close()
            second.close()


def _unneeded_copies(
    collector: GarbageCollector, first: Table, second: Table, now: datetime, grace: timedelta
) -> Iterator[str]:
    parts = second.listed()
    # List the first site after the second: a run copied in between must not be taken for gone.
    at_first = {part.key: part.object for part in first.listed()}
    # No run that may be deleted here is the proof for another: the first site has all of these.
    shared = [
        run
        for run in collector.sound(live(parts))
        if all(part.age(now) >= grace and same(part.object, at_first.get(part.key)) for part in run)
    ]
    gone = [
        run
        for run in by_name(parts)
        if run[0].name.run not in collector.settled
        and all(part.age(now) >= grace and part.key not in at_first for part in run)
    ]
    held = {
        run[0].name.whole
        for run in gone
        if collector.proof.hold(run, shared, every_row=False)
        and not any(find(first.objects, key) for key in run[0].name.keys(first.spec.name))
    }
    if held and not all(collector.proof.present(run) for run in shared):
        held = set()
    yield from collector.unreadable()
    for part in parts:
        if part.name.whole in held or collector.merged(part.name.run):
            yield part.key
