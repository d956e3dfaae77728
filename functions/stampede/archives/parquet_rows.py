"""Measurements in Parquet files, some rows at a time."""

from collections.abc import Iterator
from pathlib import Path

from stampede.archives.layouts import Asked, Layout
from stampede.archives.measurements import Measured, measured, names_of
from stampede.errors import Damaged
from stampede.store.parquet.checksums import PARQUET_ERRORS, ParquetFile

MAGIC = b"PAR1"
ROWS = 256
"""Rows that are read at once: of ZTF's objects each has up to 2,000 measurements."""


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

    def __iter__(self) -> Iterator[Measured]:
        """The measurements, in the order of the file. Raises `Damaged`."""
        before = 0
        try:
            for batch in self._file.iter_batches(ROWS, columns=self._columns, use_threads=False):
                yield measured(batch, self.layout, before)
                before += batch.num_rows
        except PARQUET_ERRORS as error:
            raise Damaged(f"it cannot be read from row {before + 1:,} on: {error}") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
