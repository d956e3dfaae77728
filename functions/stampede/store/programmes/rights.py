"""Which observing programmes are stored, and so may be given: `STAMPEDE_ZTF_PROGRAMIDS`.

What was stored under another setting is withheld at once: every reader asks here. `stampede purge`
removes it (`store/compaction/purge.py`).
"""

from typing import NamedTuple, Self

import pyarrow as pa

from stampede.config.settings import Settings
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.programmes.keys import programids_of

FEW = 16
"""Rows of which Python finds the distinct values sooner than Arrow does."""


class Rights(NamedTuple):
    """What is stored of the tables.

    Attributes
    ----------
    programids
        The programmes that are stored; None: all of them.
    without
        Archives of which nothing is.
    """

    programids: frozenset[int] | None = None
    without: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Those of the settings."""
        return cls(frozenset(map(int, settings.ztf_programids.split(","))))

    def holds(self, key: str) -> bool:
        """Whether all alerts of an object are of programmes that are stored, by its key."""
        return self.programids is None or programids_of(key) <= self.programids

    def rows(self, rows: pa.Table) -> pa.Table:
        """Those rows of a table that are of programmes that are stored.

        A row says its programme, or the key of the pack that it points into does. Rows without any
        stay: their survey has no programmes.
        """
        if self.without and rows.schema.get_field_index("survey") >= 0:
            gone = pc.is_in(rows["survey"], pa.array(sorted(self.without), pa.string()))
            rows = rows.filter(pc.invert(gone))
        if self.programids is None or not rows.num_rows:
            return rows
        schema = rows.schema  # `column_names` of a light curve takes 7 us
        if schema.get_field_index("programid") >= 0:
            return self._of_programmes(rows, self.programids)
        return self._in_packs(rows) if schema.get_field_index("pack") >= 0 else rows

    @staticmethod
    def _of_programmes(rows: pa.Table, programids: frozenset[int]) -> pa.Table:
        column = rows["programid"]
        if column.null_count == len(column):
            return rows
        if not column.null_count:  # faster than a function of Arrow: a light curve has few rows
            values = column.to_numpy()
            if int(values[0]) in programids and (values == values[0]).all():
                return rows
        stored = pc.is_in(rows["programid"], pa.array(sorted(programids), pa.int32()))
        return rows.filter(pc.or_(stored, rows["programid"].is_null()))

    def _in_packs(self, rows: pa.Table) -> pa.Table:
        column = rows["pack"]
        packs = set((column if len(column) <= FEW else column.unique()).to_pylist())
        withheld = [pack for pack in packs if pack is not None and not self.holds(pack)]
        if not withheld:
            return rows
        there = pc.is_in(rows["pack"], pa.array(withheld, pa.string()))
        # A cutout that was not sent has no pack: it goes with the others of its alert.
        alerts = rows.filter(there)["alert_id"].combine_chunks()
        unsent = pc.and_(rows["pack"].is_null(), pc.is_in(rows["alert_id"], alerts))
        return rows.filter(pc.invert(pc.or_(there, unsent)))


EVERYTHING = Rights()
