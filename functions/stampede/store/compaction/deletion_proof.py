"""Proves, before a run is deleted, that others hold it: asked of the store by name.

A listing is not enough: it may be old, or omit a key, and an object may have been lost since. Nor
is a checkpoint: deletions go by the footers.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.integrity.verification import twice, unreadable, verify
from stampede.store.objects.object_store import ObjectInfo, find, gives_others
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.merge import one_array, order_codes, sort_unique
from stampede.store.runs.run import Run, RunInfo
from stampede.store.tables.checkpoint_files import same_entry
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()

# Rows of a run that are looked up elsewhere when its coverage says already that all are there.
SAMPLE = 64


class DeletionProof:
    """Asks whether runs of a table are whole, and whether others hold what a run holds.

    Remembers what it has verified and which footers it has read, so that each is read once.

    Parameters
    ----------
    other
        The table whose runs may hold it: the same one, or the same one at another site.
    """

    def __init__(self, table: Table, other: Table | None = None) -> None:
        self._table = table
        self._other = other or table
        self._verified: dict[ObjectInfo, bool] = {}
        self._footers: dict[ObjectInfo, RunInfo | None] = {}  # None: damaged
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

    def hold(self, parts: Sequence[RunInfo], others: Sequence[Run], every_row: bool) -> bool | None:
        """Whether `others` hold the coverage and the rows of `parts`, which belong to one run.

        None if nobody can say: an object was deleted meanwhile, or `parts` or rows of `others`
        cannot be read. Those of `others` that are damaged do not count.

        Without `every_row` the coverage is the proof, and of the rows only a few are looked up;
        all, if there is no coverage. Ask afterwards whether `others` are `present`: some of their
        rows may be read from the cache. Raises `StoreDown`.
        """
        part = parts[0]
        try:
            coverage = _read_footer(self._table, part).coverage
            if coverage - self.coverage(others):
                return False
            among = [one for run in others if self.footer(run) for one in run]
            for part in parts:
                rows = self._rows(part, every_row or not coverage)
                if not all(
                    self._rows_held(self._with_siblings(some, part), among) for some in rows
                ):
                    return False
        except NotFound:  # merged meanwhile: the next pass asks again
            return None
        except Damaged as error:
            self.damaged[part.key] = error.message
            return None
        except StoreDown as error:
            # At one of these objects alone: what else is to be deleted must not wait for it.
            sites = (self._table.objects, self._other.objects)
            if not all(gives_others(site, part.key) for site in sites):
                raise
            log.warning("rows not compared", key=part.key, why=error.message)
            return None
        return True

    def coverage(self, others: Sequence[Run]) -> Coverage:
        """What the footers of `others` say; those that are damaged are left out.

        Raises `NotFound`, `StoreDown`.
        """
        self._other.map(self.footer, others)
        return Coverage.union(footer.coverage for run in others if (footer := self.footer(run)))

    def footer(self, run: Run) -> RunInfo | None:
        """The footer of a holder's first part, not what a checkpoint says of it.

        None if it is damaged: then that part is in quarantine. Raises `NotFound`, `StoreDown`.
        """
        part = run[0]
        if part.object not in self._footers:
            try:
                self._footers[part.object] = _read_footer(self._other, part)
            except Damaged as error:
                self._footers[part.object] = None
                self.damaged[part.key] = error.message
                self._other.listing.put_into_quarantine(part, error.message)
        return self._footers[part.object]

    def _rows(self, part: RunInfo, every: bool) -> Iterator[pa.Table]:
        """The rows of a part, a row group at a time; or a few of each of a few row groups."""
        file = self._table.reader.open(part)
        for group in file.numbers if every else _spread(file.numbers, 4):
            [rows] = file.read([group])
            yield rows if every else rows.take(_spread(range(rows.num_rows), SAMPLE // 4))

    def _with_siblings(self, rows: pa.Table, part: RunInfo) -> pa.Table:
        """With the other rows of alerts of which only images that were not sent are among `rows`.

        Their packs alone tell whether the alert is of a programme that is stored.
        """
        if "pack" not in rows.column_names or self._table.rights.programids is None:
            return rows
        unsent = rows["pack"].is_null()
        told = rows.filter(pc.invert(unsent))["alert_id"].combine_chunks()
        alerts = rows.filter(unsent)["alert_id"].unique()
        untold = alerts.filter(pc.invert(pc.is_in(alerts, told))).to_pylist()
        if not untold:
            return rows
        found = self._table.lookup_among(untold, [part])
        return sort_unique(pa.concat_tables([rows, found]), self._table.spec)

    def _rows_held(self, rows: pa.Table, among: Sequence[RunInfo]) -> bool:
        spec = self._table.spec
        rows = self._table.rights.rows(rows.select(spec.schema.names).cast(spec.schema))
        found = self._other.lookup_among(rows[spec.leading].unique().to_pylist(), among)
        both = sort_unique(pa.concat_tables([found, rows]), spec)
        return both.num_rows == found.num_rows and all(
            _same_bits(both[name], found[name]) for name in spec.schema.names
        )

    def _sound(self, part: RunInfo) -> bool:
        if part.object not in self._verified:
            try:
                verify(self._table.objects, part.object)
                if not same_entry(_read_footer(self._table, part), part):
                    why = f"{part.key} is not what a checkpoint says: run `stampede rebuild`"
                    raise Damaged(why)
            except NotFound:
                return False
            except Damaged as error:
                self.damaged[part.key] = error.message
            except StoreDown as error:
                # Nothing is deleted because of it, and the rest must not wait for it.
                if not unreadable(self._table.objects, part.key):
                    raise
                self.damaged[part.key] = error.message
            self._verified[part.object] = part.key not in self.damaged
        return self._verified[part.object]


def _read_footer(table: Table, part: RunInfo) -> RunInfo:
    """A part's footer as it is now. Raises as `twice` does."""
    return twice(table.objects, part.key, lambda: table.reader.footer(part.object))


def _spread(numbers: range, most: int) -> list[int]:
    """At most `most` of `numbers`, evenly spread."""
    return list(numbers[:: max(1, -(-len(numbers) // most))])


def _same_bits(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    codes = order_codes(one_array(pa.chunked_array([*one.chunks, *other.chunks], one.type)))
    return np.array_equal(codes[: len(one)], codes[len(one) :])
