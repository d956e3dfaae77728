"""Imports files of light curves: into the tables `detections` and `positions`, and nowhere else.

Their runs hold no offsets, so the ledger of alerts and all that rests on it know nothing of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from stampede.alerts.bounds import Times
from stampede.alerts.positions import positions_of
from stampede.archives.json_rows import JsonRows
from stampede.archives.layouts import Asked, Layout
from stampede.archives.measurements import Fault, Measured
from stampede.archives.parquet_rows import MAGIC, ParquetRows
from stampede.archives.points import points_of
from stampede.errors import Damaged, SetupError
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.table import Table

RUN_POINTS = 200_000
"""Points of a run: a process takes 320 MB in all, and 3 us of CPU a point."""
ENDINGS = (".parquet", ".json", ".jsonl", ".ndjson")
"""Ends of the names of files that are taken out of folders."""
MOST_FAULTS = 20
"""Faults that are kept as examples."""


class FileFault(NamedTuple):
    """A fault of a file, or of one of its rows."""

    file: Path
    fault: Fault

    def __str__(self) -> str:
        row = f", row {self.fault.row:,}" if self.fault.row else ""
        return f"{self.file}{row}: {self.fault.why}"


class Tally:
    """What became of the files so far.

    Attributes
    ----------
    files
        Files that were read to their end.
    points
        Points that were read: those before the present run are stored.
    unmeasured
        Measurements without a value.
    refused
        Rows, measurements and files with a fault.
    faults
        The first `MOST_FAULTS` of these.
    layouts
        What was taken of the files for what, and an example of such a file.
    """

    def __init__(self) -> None:
        self.files = self.points = self.unmeasured = self.refused = 0
        self.faults: list[FileFault] = []
        self.layouts: dict[str, Path] = {}

    def refuse(self, file: Path, faults: Sequence[Fault], count: int) -> None:
        """Count faults, and keep the first as examples."""
        self.refused += count
        some = faults[: max(0, MOST_FAULTS - len(self.faults))]
        self.faults += [FileFault(file, fault) for fault in some]


class Store(NamedTuple):
    """The tables that an archive fills."""

    detections: Table
    positions: Table

    @classmethod
    def of(cls, objects: Objects) -> "Store":
        """The tables in a store."""
        return cls(Table(objects, DETECTIONS, threads=1), Table(objects, POSITIONS, threads=1))

    def append(self, points: pa.Table) -> None:
        """Store points: what has a point then has a position. Raises `StoreDown`."""
        self.positions.append(positions_of(points), Coverage())
        self.detections.append(points, Coverage())


def files_in(paths: Iterable[Path]) -> list[Path]:
    """The files that are named, and those in folders by their names, in order.

    Raises `SetupError` if one is not there, or a folder has none.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_file():
            found.append(path)
            continue
        if not path.is_dir():
            raise SetupError(f"there is no file {path}")
        inside = sorted(each for each in path.rglob("*") if each.suffix in ENDINGS)
        if not inside:
            raise SetupError(f"the folder {path} has no file that ends in {' '.join(ENDINGS)}")
        found += inside
    return found


class Importer:
    """Reads files of one archive and stores their light curves.

    Parameters
    ----------
    archive
        Its name, checked (`names.check_name`).
    asked
        What the operator says of the files.
    latest
        The latest time that a measurement may have, MJD TAI.
    """

    def __init__(self, archive: str, asked: Asked, latest: float) -> None:
        self.tally = Tally()
        self._archive, self._asked, self._times = archive, asked, Times(latest)

    def runs(self, files: Iterable[Path]) -> Iterator[pa.Table]:
        """The points in files, about `RUN_POINTS` at a time: each table is a run.

        A run ends with its file, so the same files give the same runs again. Of a row with a fault
        there is only the fault, in the tally; of a file that cannot be read what comes before that.
        """
        for path in files:
            try:
                yield from self._of_file(path)
                self.tally.files += 1
            except (Damaged, SetupError) as error:
                self.tally.refuse(path, [Fault(0, error.message)], 1)
            except OSError as error:
                why = f"it cannot be read: {error.strerror or error}"
                self.tally.refuse(path, [Fault(0, why)], 1)

    def _of_file(self, path: Path) -> Iterator[pa.Table]:
        with path.open("rb") as file:
            is_parquet = file.read(len(MAGIC)) == MAGIC
        with closing((ParquetRows if is_parquet else JsonRows)(path, self._asked)) as rows:
            self.tally.layouts[rows.layout.described] = path
            held: list[pa.Table] = []
            fault: Damaged | None = None
            try:
                for measured in rows:
                    held.append(self._points(path, measured, rows.layout))
                    if sum(each.num_rows for each in held) >= RUN_POINTS:
                        yield pa.concat_tables(held)
                        held = []
            except Damaged as error:
                fault = error
            if any(each.num_rows for each in held):
                yield pa.concat_tables(held)
            if fault:
                raise fault

    def _points(self, path: Path, measured: Measured, layout: Layout) -> pa.Table:
        self.tally.refuse(path, measured.faults, len(measured.faults))
        found = points_of(measured.rows, layout, self._archive, self._times)
        self.tally.refuse(path, found.faults, found.refused)
        self.tally.unmeasured += found.unmeasured
        self.tally.points += found.rows.num_rows
        return found.rows
