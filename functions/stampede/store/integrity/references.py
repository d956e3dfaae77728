"""Whether the packs exist into which the rows of a table of locations point."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from stampede.errors import Damaged, NotFound
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.integrity.referenced_packs import NamedPacks
from stampede.store.objects.object_store import Objects, find
from stampede.store.packs.pack_name import night_of
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import PackSpec
from stampede.store.tables.table import Table


class Place(NamedTuple):
    """A row group of a part."""

    part: RunInfo
    group: int


class PackCheck(NamedTuple):
    """What was checked: rows of all rows, packs they point into, and the packs that are lost.

    `damaged` names the parts of runs whose rows cannot be read, and why.
    """

    rows: int
    all_rows: int
    packs: int
    lost: list[str]
    damaged: dict[str, str]


def check_packs(
    objects: Objects,
    spec: PackSpec,
    expired: Callable[[str], bool] = lambda key: False,
    most_rows: int = 2_000_000,
    seed: int | None = None,
) -> PackCheck:
    """Ask for the packs that rows name: one by one, or by listings of their nights.

    Of a table with more than `most_rows` rows, row groups drawn at random are checked. Packs past
    their retention are not lost, nor those to which only rows point that lose to other versions.
    Raises `StoreDown`.
    """
    table = Table(objects, spec.locations)
    try:
        parts = table.runs()
        all_rows = sum(part.rows for part in parts)
        share = min(1.0, most_rows / max(1, all_rows))
        dice, rows, packs = random.Random(seed), 0, NamedPacks(objects)
        damaged: dict[str, str] = {}
        named: dict[int, dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))
        for part in parts:
            try:
                file = table.reader.open(part)
                for group in file.numbers:
                    if dice.random() >= share:
                        continue
                    [found] = file.read([group])
                    rows += found.num_rows
                    for key in pc.unique(found["pack"]).drop_null().to_pylist():
                        named[night_of(key) or 0][key].append(Place(part, group))
            except NotFound:  # merged meanwhile
                continue
            except Damaged as error:
                damaged[part.key] = error.message
        lost = [
            key
            for _, places in sorted(named.items())
            for key in sorted(places)
            # Asked by name again: a listing may have left it out.
            if not expired(key) and not packs.reach(key) and find(objects, key) is None
            if _wins(table, key, places[key])
        ]
        return PackCheck(rows, all_rows, sum(map(len, named.values())), lost, damaged)
    finally:
        table.close()


def _wins(table: Table, key: str, places: Iterable[Place]) -> bool:
    """Whether any row that readers get points into a pack; `places` have rows that do."""
    ids: list[int] = []
    for part, group in places:
        try:
            [rows] = table.reader.open(part).read([group])
        except (NotFound, Damaged):  # merged meanwhile
            return True
        ids += rows.filter(pc.equal(rows["pack"], key))["alert_id"].to_pylist()
    return pc.any(pc.equal(table.lookup(ids)["pack"], key)).as_py() or False
