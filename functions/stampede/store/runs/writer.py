"""Writes a part of a run. docs/store.md describes the format."""

import io
import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.offsets.coverage import COVERAGE, Coverage
from stampede.store.parquet.checksums import (
    BODY_PLACEHOLDER,
    MOST_PAIRS,
    PACKED,
    PLACEHOLDER,
    new_file,
    seal,
)
from stampede.store.parquet.partial_footers import partial_footers
from stampede.store.parquet.xxhash64 import hash_keys
from stampede.store.runs.bloom_filters import KEY_BITS, Filter
from stampede.store.runs.footer import FILTER, SECTIONS
from stampede.store.runs.index_sections import fill, placeholder
from stampede.store.runs.merge import one_array
from stampede.store.runs.packed_coverage import PackedCoverage
from stampede.store.runs.schema import TableSpec

# Rows per row group: what one lookup fetches and decodes, 60 to 140 KB in 0.2 ms.
GROUP_ROWS = 2000
SECTION_GROUPS = 64
"""Row groups of a section: it takes 20 to 210 KB, and its index 2 ms to parse."""
# A part with more row groups than these, or a larger filter, has sections. The footer of a smaller
# one fits into the 32 KB that a start reads, so it needs none.
SMALL_GROUPS = 16
SMALL_FILTER = 8 << 10  # bytes: 5,461 keys


class RunWriter:
    """Writes one part of a run into memory."""

    def __init__(self, spec: TableSpec) -> None:
        self.rows = 0
        self._spec = spec
        self._ends: list[int | str] = []
        self._groups = 0
        self._keys: list[int | str] = []  # the least of each section
        self._hashes: list[list[np.ndarray]] = []  # of the keys of each section
        self._sink = io.BytesIO()
        self._writer = new_file(
            self._sink,
            spec.schema.remove_metadata(),
            version="2.6",
            compression="LZ4",
            # Numbers hardly repeat, and a dictionary would take -0.0 for 0.0.
            use_dictionary=[f.name for f in spec.schema if pa.types.is_string(f.type)],
            write_statistics=[spec.leading],
            store_schema=False,
        )

    def add(self, rows: pa.Table) -> None:
        """Append `rows`, which sort after all rows added before."""
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=GROUP_ROWS)
            self._note_keys(one_array(rows[self._spec.leading]))
            self.rows += rows.num_rows
            self._groups += -(-rows.num_rows // GROUP_ROWS)

    def close(
        self,
        level: int,
        inputs: Sequence[str],
        coverage: Coverage,
        cuts: str | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> pa.Buffer:
        """Write the footer, and return the bytes of the file.

        `cuts` is the digest of the cuts of a merged run, and `part` the number of this part and
        that of all parts: a reader holds the part to its name by them. A packed `coverage` is
        written before the footer, any other into it.
        """
        metadata: dict[str, Any] = {
            "level": level,
            "table": self._spec.name,
            "inputs": list(inputs),
            "rows": self.rows,
            "first": self._ends[0] if self._ends else None,
            "last": self._ends[-1] if self._ends else None,
        }
        if cuts is not None:
            metadata |= {"cuts": cuts, "part": part}
        footer = {f"stampede.{name}": json.dumps(value) for name, value in metadata.items()}
        if level:
            footer |= BODY_PLACEHOLDER
        block = coverage if isinstance(coverage, PackedCoverage) else None
        footer[COVERAGE.decode()] = block.block.to_json() if block else coverage.to_json()
        small = self._small_filter()
        if small:
            footer[FILTER.decode()] = json.dumps(b64encode(small.data).decode())
        filtered = self._spec.filtered and bool(self.rows)
        in_sections = self._groups > SMALL_GROUPS or (filtered and not small)
        if in_sections:
            footer[SECTIONS.decode()] = placeholder(self._keys, self._section_groups)
        self._write_footer(PLACEHOLDER | footer | (PACKED if block else {}))
        if in_sections:
            each = filtered and not small
            self._write_sections(
                [Filter.of(np.concatenate(hashes)) if each else None for hashes in self._hashes]
            )
        if block:
            self._write_before_footer(block.data)
        return seal(pa.py_buffer(self._sink.getbuffer()))

    @property
    def _section_groups(self) -> range:
        """The first row group of each section."""
        return range(0, self._groups, SECTION_GROUPS)

    def _note_keys(self, leading: pa.Array) -> None:
        """Note the keys of rows that become the next row groups."""
        keys = pc.run_end_encode(leading)
        ends = keys.run_ends.to_numpy()
        starts = np.append(0, ends[:-1])
        # A key may reach over the end of a section: then it belongs to both.
        first = (self._groups + starts // GROUP_ROWS) // SECTION_GROUPS
        last = (self._groups + (ends - 1) // GROUP_ROWS) // SECTION_GROUPS
        hashes = hash_keys(keys.values) if self._spec.filtered else np.empty(0, np.uint64)
        for section in range(int(first[0]), int(last[-1]) + 1):
            low, high = np.searchsorted(last, section), np.searchsorted(first, section, "right")
            if section == len(self._keys):
                self._keys.append(keys.values[int(low)].as_py())
                self._hashes.append([])
            self._hashes[section].append(hashes[low:high])
        self._ends = [*self._ends[:1], leading[0].as_py(), leading[-1].as_py()]

    def _small_filter(self) -> Filter | None:
        """The filter of all keys, if it is small."""
        hashes = [of_rows for of_section in self._hashes for of_rows in of_section]
        most = 8 * SMALL_FILTER // KEY_BITS
        if not self._spec.filtered or not hashes or sum(map(len, hashes)) > most:
            return None
        return Filter.of(np.unique(np.concatenate(hashes)))

    def _write_sections(self, filters: Sequence[Filter | None]) -> None:
        """Write the sections before the footer, and their places into it."""
        start, footer = self._footer()
        footers = partial_footers(footer, self._spec.schema, SECTION_GROUPS)
        groups = self._section_groups
        places, sections = fill(self._keys, groups, start, footers, filters)
        before = placeholder(self._keys, groups).encode()
        at = footer.rindex(before)
        footer = footer[:at] + places.encode() + footer[at + len(before) :]
        self._write_before_footer(sections, footer)

    def _write_footer(self, pairs: dict[str, str]) -> None:
        assert len(pairs) <= MOST_PAIRS, "readers find the list of pairs by its short head"
        self._writer.add_key_value_metadata(pairs)
        self._writer.close()

    def _footer(self) -> tuple[int, bytes]:
        """Where the footer begins, and its bytes."""
        with self._sink.getbuffer() as file:
            start = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
            return start, bytes(file[start:-8])

    def _write_before_footer(self, data: bytes, footer: bytes | None = None) -> None:
        """Write bytes where the footer begins, and the footer, as it is or this one, after them."""
        start, present = self._footer()
        footer = present if footer is None else footer
        self._sink.seek(start)
        self._sink.truncate()
        for piece in (data, footer, len(footer).to_bytes(4, "little"), b"PAR1"):
            self._sink.write(piece)
