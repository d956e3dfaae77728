"""Proves, before a run is deleted, that others hold it: asked of the store by name.

A listing is not enough: it may be old, or omit a key, and an object may have been lost since. Nor
is a checkpoint: deletions go by the footers.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged, NotFound
from stampede.store.coverage import Coverage
from stampede.store.kept_checkpoints import same_entry
from stampede.store.merge import one_array, order_codes, sort_unique
from stampede.store.objects import ObjectInfo, find
from stampede.store.runs import Run, RunInfo
from stampede.store.tables import Table
from stampede.store.verification import verify

# Rows of a run that are looked up elsewhere when its coverage says already that all are there.
SAMPLE = 64


class Holders:
    """Asks whether runs of a table are whole, and whether others hold what a run holds.

    Remembers which objects it has verified, so that each is read once.

    Parameters
    ----------
    other
        The table whose runs may hold it: the same one, or the same one at another site.
    """

    def __init__(self, table: Table, other: Table | None = None) -> None:
        self._table = table
        self._other = other or table
        self._verified: set[ObjectInfo] = set()
        self._coverages: dict[ObjectInfo, Coverage] = {}
        self.damaged: dict[str, str] = {}
        """Keys of the parts found lost or damaged, and what is wrong with each."""

    def stand(self, run: Run) -> bool:
        """Whether each part of a complete run is there now, unchanged, and reads as it was stored.

        Raises `StoreDown`.
        """
        return self.present(run) and all(map(self._sound, run))

    def present(self, run: Run) -> bool:
        """Whether each part of a complete run is there now, unchanged. Raises `StoreDown`."""
        found = self._table.map(lambda part: find(self._table.objects, part.key), run)
        return all(
            info is not None and info[:3] == part.object[:3]
            for part, info in zip(run, found, strict=True)
        )

    def hold(self, parts: Sequence[RunInfo], others: Sequence[Run], every_row: bool) -> bool:
        """Whether `others` hold the coverage and the rows of `parts`, which belong to one run.

        Without `every_row` the coverage is the proof, and of the rows only a few are looked up;
        all, if there is no coverage. Ask afterwards whether `others` are `present`: some of their
        rows may be read from the cache. Raises `StoreDown`.
        """
        among = [part for run in others for part in run]
        every_row = every_row or not parts[0].coverage
        try:
            return not parts[0].coverage - self.coverage(others) and all(
                self._rows_held(rows, among)
                for part in parts
                for rows in self._rows(part, every_row)
            )
        except NotFound:  # merged meanwhile: the next pass asks again
            return False
        except Damaged as error:
            self.damaged[parts[0].key] = error.message
            return False

    def coverage(self, others: Sequence[Run]) -> Coverage:
        """What the footers of `others` say, not what a checkpoint says of them.

        Raises `NotFound`, `Damaged`, `StoreDown`.
        """
        new = [run[0] for run in others if run[0].object not in self._coverages]
        footers = self._other.map(self._other.reader.footer, [part.object for part in new])
        self._coverages |= {footer.object: footer.coverage for footer in footers}
        return Coverage.union(self._coverages[run[0].object] for run in others)

    def _rows(self, part: RunInfo, every: bool) -> Iterator[pa.Table]:
        """The rows of a part, a row group at a time; or a few of each of a few row groups."""
        file = self._table.reader.open(part)
        for group in file.numbers if every else _spread(file.numbers, 4):
            [rows] = file.read([group])
            yield rows if every else rows.take(_spread(range(rows.num_rows), SAMPLE // 4))

    def _rows_held(self, rows: pa.Table, among: Sequence[RunInfo]) -> bool:
        spec = self._table.spec
        rows = rows.select(spec.schema.names).cast(spec.schema)
        found = self._other.lookup_among(rows[spec.leading].unique().to_pylist(), among)
        both = sort_unique(pa.concat_tables([found, rows]), spec)
        return both.num_rows == found.num_rows and all(
            _same_bits(both[name], found[name]) for name in spec.schema.names
        )

    def _sound(self, part: RunInfo) -> bool:
        if part.object in self._verified:
            return True
        try:
            verify(self._table.objects, part.object)
            footer = self._table.reader.footer(part.object)
            if not same_entry(footer, part):
                raise Damaged(f"{part.key} is not what a checkpoint says: run `stampede rebuild`")
        except NotFound:
            return False
        except Damaged as error:
            self.damaged[part.key] = error.message
            return False
        self._verified.add(part.object)
        return True


def _spread(numbers: range, most: int) -> list[int]:
    """At most `most` of `numbers`, evenly spread."""
    return list(numbers[:: max(1, -(-len(numbers) // most))])


def _same_bits(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    codes = order_codes(one_array(pa.chunked_array([*one.chunks, *other.chunks], one.type)))
    return np.array_equal(codes[: len(one)], codes[len(one) :])
