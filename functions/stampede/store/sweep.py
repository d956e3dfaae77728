"""Finds parts of runs that are no longer needed. docs/store.md explains why deleting is safe."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from stampede.store.objects import Objects
from stampede.store.runs import RunInfo, complete, inputs_of, prefix, settled_inputs
from stampede.store.schema import ALL_TABLES
from stampede.store.tables import Table


def unneeded_parts(table: Table, now: datetime, grace: timedelta) -> Iterator[RunInfo]:
    """The parts of a table to be deleted, lowest level first.

    These are the inputs of a run that has been complete for `grace`; and the parts of a run that
    was left half-written at least `grace` ago, once other complete runs hold the rows of all its
    inputs.

    Delete each part before taking the next: every check looks into the store at that time.
    """
    parts = table.listed()
    runs = complete(parts)
    finished = {run[0].name.run for run in runs}
    merged, settled = inputs_of(runs), settled_inputs(runs, now, grace)

    def parts_in_store(run: str) -> int:
        return sum(1 for _ in table.objects.list(prefix(table.spec.name) + run))

    def abandoned(part: RunInfo) -> bool:
        # Our listing is stale. Re-check inputs first, then the run: only that order proves that no
        # input was deleted because this run had completed.
        return (
            part.name.run not in finished
            and part.age(now) >= grace
            and all(name in merged or not parts_in_store(name) for name in part.inputs)
            and parts_in_store(part.name.run) < part.name.parts
        )

    for part in parts:
        if part.name.run in settled or abandoned(part):
            yield part


def unneeded_at_second_site(
    source: Objects, target: Objects, now: datetime, grace: timedelta
) -> Iterator[str]:
    """Keys of the parts of runs that the second site no longer needs, lowest level first.

    These are the inputs of a run that has been complete there for `grace`; and, after the grace,
    the parts of a run that is incomplete there and has no part left at the source: it will never
    be complete. (`unneeded_parts` may assume that the missing inputs of a half-written run were
    merged into it or into another run. At the second site they may never have been copied.)
    """
    for spec in ALL_TABLES.values():
        table = Table(target, spec, cache_bytes=0)
        parts = table.listed()
        table.close()
        runs = complete(parts)
        finished = {run[0].name.run for run in runs}
        settled = settled_inputs(runs, now, grace)
        for part in parts:
            run = part.name.run
            if run in settled or (
                run not in finished
                and part.age(now) >= grace
                and next(source.list(prefix(spec.name) + run), None) is None
            ):
                yield part.key
