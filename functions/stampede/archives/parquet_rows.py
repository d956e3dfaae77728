"""Measurements in Parquet files, some rows at a time."""

from collections.abc import Iterator
from pathlib import Path

from stampede.archives.layouts import Asked, Layout
from stampede.archives.measurements import MEASURED, Fault, Measured, is_list, measured, names_of
from stampede.errors import Damaged
from stampede.store.parquet.checksums import PARQUET_ERRORS, ParquetFile

MAGIC = b"PAR1"
ROWS = 256
"""Rows with lists that are read at once: of ZTF's objects each has up to 2,000 measurements."""
FLAT_ROWS = 65_536
"""Rows without lists that are read at once."""


class ParquetRows:
    """A Parquet file that this project did not write: its pages are verified if they have CRCs.

    Raises `Damaged` if it is none, `SetupError` if its columns are not known.
    """

    def __init__(self, path: Path, asked: Asked) -> None:
        try:
            self._file = ParquetFile(path, page_checksum_verification=True, pre_buffer=False)
            schema = self._file.schema_arrow
        except PARQUET_ERRORS as error:
            raise Damaged(f"it is not a Parquet file: {error}") from None
        self.layout = Layout.of(names_of(schema), asked)
        tops = {name if name in schema.names else name.partition(".")[0]
                for name in self.layout.columns.values()}  # fmt: skip
        self._columns = [name for name in schema.names if name in tops]
        has_lists = any(is_list(schema.field(name).type) or name not in self.layout.columns.values()
                        for name in self._columns)  # fmt: skip
        self._rows = ROWS if has_lists else FLAT_ROWS

    def __iter__(self) -> Iterator[Measured]:
        """The measurements, in the order of the file; of a damaged row group a fault.

        Raises `Damaged` if a column is not of a type that can be read.
        """
        begin = 0
        for group in range(self._file.num_row_groups):
            end = begin + self._file.metadata.row_group(group).num_rows
            try:
                yield from self._of_group(group, begin)
            except PARQUET_ERRORS as error:
                why = f"rows of it up to {end:,} cannot be read: {error}"
                yield Measured(MEASURED.empty_table(), [Fault(begin + 1, why)])
            begin = end

    def _of_group(self, group: int, before: int) -> Iterator[Measured]:
        batches = self._file.iter_batches(
            self._rows, row_groups=[group], columns=self._columns, use_threads=False
        )
        for batch in batches:
            yield measured(batch, self.layout, before)
            before += batch.num_rows

    def close(self) -> None:
        """Close the file."""
        self._file.close()
