"""Holds what a lookup goes by, the sections and the filters of a part, to the rows of the part."""

import pyarrow as pa

from stampede.errors import Damaged
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.objects.object_store import Objects
from stampede.store.parquet.checksums import PARQUET_ERRORS
from stampede.store.parquet.xxhash64 import hash_keys
from stampede.store.runs.footer import RunIndex, parse_section
from stampede.store.runs.index_sections import Sections
from stampede.store.runs.keys import sortable
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import TableSpec


class LookupCheck:
    """The check of one part; `sections` are the bytes of all its sections.

    Raises what `Objects.get` raises.
    """

    def __init__(self, objects: Objects, run: RunInfo, index: RunIndex, spec: TableSpec) -> None:
        self._run, self._index, self._spec = run, index, spec
        self._number, self._section = -1, index
        self.sections = b""
        if run.sections is not None:
            start = run.sections.listed[0].start
            self.sections = objects.get(run.key, start, run.sections.length)

    def check(self, group: int, leading: pa.ChunkedArray) -> None:
        """Raise `Damaged` unless a lookup of any key of this row group finds it."""
        run = self._run
        ends = sortable([leading[0].as_py(), leading[-1].as_py()], self._spec)
        if run.sections is not None:
            if self._number < 0 or group not in self._section.numbers:
                self._number += 1
                self._section = self._parsed(run.sections)
            if not run.sections.span(self._number, ends):
                raise Damaged(f"{run.key}: the keys of row group {group} are not in its section")
        section, hashes = self._section, hash_keys(pc.unique(leading))
        filters = [one for one in (run.filter, section.filter) if one]
        if not all(one.passes(hashes).all() for one in filters):
            raise Damaged(f"{run.key} has a filter that leaves out keys of row group {group}")
        for of in (RunIndex.extent, RunIndex.rows_of):
            if group not in section.numbers or of(section, group) != of(self._index, group):
                raise Damaged(f"{run.key}: a section does not describe row group {group}")
        # A lookup goes by a section, or by the footer if the section is damaged.
        if not (self._index.spans(group, ends) and section.spans(group, ends)):
            raise Damaged(f"{run.key} has keys in row group {group} that its statistics leave out")

    def _parsed(self, sections: Sections) -> RunIndex:
        if self._number == len(sections.listed):
            raise Damaged(f"{self._run.key} has fewer sections than its row groups need")
        place = sections.listed[self._number]
        start = place.start - sections.listed[0].start
        data = self.sections[start : start + place.length]
        try:
            return parse_section(self._run, self._number, data, self._spec)
        except PARQUET_ERRORS as error:
            raise Damaged(f"{self._run.key}: a section is damaged: {error}") from None
