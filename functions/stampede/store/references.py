"""Whether the packs exist into which the rows of a table of locations point."""

import random
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import pyarrow.compute as pc

from stampede.errors import Damaged, NotFound
from stampede.store.named_packs import NamedPacks
from stampede.store.objects import Objects, find
from stampede.store.packs import night_of
from stampede.store.schema import PackSpec
from stampede.store.tables import Table


class PackCheck(NamedTuple):
    """What was checked: rows of all rows, packs they point into, and the packs that are lost."""

    rows: int
    all_rows: int
    packs: int
    lost: list[str]


def check_packs(
    objects: Objects,
    spec: PackSpec,
    expired: Callable[[str], bool] = lambda key: False,
    most_rows: int = 2_000_000,
    seed: int | None = None,
) -> PackCheck:
    """Ask for the packs that rows name: one by one, or by listings of their nights.

    Of a table with more than `most_rows` rows, row groups drawn at random are checked. Packs past
    their retention are not lost. Raises `StoreDown`.
    """
    table = Table(objects, spec.locations)
    try:
        parts = table.runs()
        all_rows = sum(part.rows for part in parts)
        share = min(1.0, most_rows / max(1, all_rows))
        dice, rows, packs = random.Random(seed), 0, NamedPacks(objects)
        named: dict[int, set[str]] = defaultdict(set)
        for part in parts:
            try:
                file = table.reader.open(part)
                for group in file.numbers:
                    if dice.random() >= share:
                        continue
                    [found] = file.read([group])
                    rows += found.num_rows
                    for key in pc.unique(found["pack"]).drop_null().to_pylist():
                        named[night_of(key) or 0].add(key)
            except (NotFound, Damaged):  # merged meanwhile; or in quarantine, and named there
                continue
        lost = [
            key
            for _, keys in sorted(named.items())
            for key in sorted(keys)
            # Asked by name again: a listing may have left it out.
            if not expired(key) and not packs.reach(key) and find(objects, key) is None
        ]
        return PackCheck(rows, all_rows, sum(map(len, named.values())), lost)
    finally:
        table.close()
