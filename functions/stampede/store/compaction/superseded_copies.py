"""Damaged copies of runs at the second site that the first site no longer needs.

The first site merges a run away while its copy at the second site is damaged. Then no site has a
good copy, no merge at the second site lists the run as an input, and its rows cannot be compared.
The offsets that the first site holds are the proof that its rows were merged and not lost.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.compaction.deletion_proof import DeletionProof
from stampede.store.integrity.dead_letter_offsets import dead_lettered
from stampede.store.integrity.verification import sound
from stampede.store.objects.object_store import ObjectInfo, find, gives_others
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.run import live
from stampede.store.runs.run_name import RunName, prefix
from stampede.store.runs.schema import THUMBNAILS
from stampede.store.tables.table import Table

SOURCES = {THUMBNAILS.name: "cutouts"}
"""The table whose dead letters explain what a derived table lacks."""


def superseded_copies(
    first: Table, second: Table, now: datetime, grace: timedelta, undecided: dict[str, str]
) -> Iterator[str]:
    """Keys of damaged parts of runs at the second site whose rows the first site has merged.

    The first site must have none of the run, nothing damaged or lost in the table, and hold the
    offsets of the part. If the part's own offsets cannot be read, the first site must hold all
    offsets from the first to the last of every partition. If they are known, the second site must
    hold them by now too: else its memory would name the part as lost. Raises `StoreDown`.

    Parameters
    ----------
    now
        The time by the second site's clock; a copy must be as old as `grace`.
    undecided
        Gets key and reason of each object because of which nobody can say: a run of the first site
        that is damaged, or a copy that the second site does not give, although it gives others.
    """
    known = {part.key: part for part in second.listed()}
    remembered = {part.key: part for part in second.listing.remembered()}
    old = [info for info in _gone_from_first(first, second) if now - info.modified >= grace]
    damaged = [info for info in old if _damaged(second, info, undecided)]
    if not damaged:
        return
    first.refresh()
    runs = live(first.listed())
    undecided |= first.quarantined()
    if first.quarantined() or not runs:
        return
    name = first.spec.name
    proof = DeletionProof(first)
    try:
        held = proof.coverage(runs)
    except NotFound:  # merged since the listing: the next pass asks again
        return
    if proof.damaged:  # a checkpoint had hidden it
        undecided |= proof.damaged
        return
    held |= dead_lettered(first.objects, SOURCES.get(name, name))
    bad = {info.key for info in damaged}
    whole = [run for run in live(known.values()) if not any(part.key in bad for part in run)]
    held_here = Coverage.union(run[0].coverage for run in whole)
    for info in damaged:
        memory = remembered.get(info.key)
        if memory and memory.coverage - held_here:
            continue  # until the run that the first site merged it into is copied
        if _held(second, info, held, undecided) and all(proof.present(run) for run in runs):
            yield info.key


def _gone_from_first(first: Table, second: Table) -> Iterator[ObjectInfo]:
    """The parts at the second site of whose runs the first site has nothing."""
    folder = prefix(first.spec.name)
    there = {name.run for info in first.objects.list(folder) if (name := RunName.parse(info.key))}
    for info in second.objects.list(folder):
        name = RunName.parse(info.key)
        # The listing may have left it out: ask for it by name.
        if name and name.run not in there and find(first.objects, info.key) is None:
            yield info


def _damaged(second: Table, info: ObjectInfo, undecided: dict[str, str]) -> bool:
    try:
        return not sound(second.objects, info)
    except NotFound:
        return False
    except StoreDown as error:
        _withheld(second, info, error, undecided)
        return False


def _withheld(second: Table, info: ObjectInfo, error: StoreDown, undecided: dict[str, str]) -> None:
    """Note an object that the store does not give; it may be whole. Raises if none is given."""
    if not gives_others(second.objects, info.key):
        raise error
    undecided[info.key] = error.message


def _held(second: Table, info: ObjectInfo, held: Coverage, undecided: dict[str, str]) -> bool:
    try:
        # From the footer itself: a checkpoint may say too little.
        coverage = second.reader.footer(info).coverage
    except NotFound:
        return False
    except StoreDown as error:
        _withheld(second, info, error, undecided)
        return False
    except Damaged:
        partitions = held.partitions()
        return bool(partitions) and all(len(held.intervals(*one)) == 1 for one in partitions)
    return bool(coverage) and not coverage - held
