"""Positions in a file, for a cross-match: `stampede get match`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stampede.errors import SetupError

if TYPE_CHECKING:
    import pyarrow as pa

MOST = 100_000
"""Positions that the server takes in one request."""
RA = ("ra", "ra_deg", "raj2000", "ra_icrs")
DEC = ("dec", "dec_deg", "dej2000", "decj2000", "de_icrs")
"""Names of the columns, in any case: those of catalogues of VizieR too."""


def read_positions(file: Path) -> list[list[float]]:
    """The positions in a CSV or Parquet file: [right ascension, declination], ICRS degrees.

    Raises `SetupError`, which names the file and what is wrong with it.
    """
    table = _table(file)
    by_name = {name.lower(): number for number, name in enumerate(table.column_names)}
    columns = [_column(table, by_name, names, file) for names in (RA, DEC)]
    positions = [list(each) for each in zip(*columns, strict=True)]
    if not positions:
        raise SetupError(f"{file} has no position")
    if len(positions) > MOST:
        raise SetupError(
            f"{file} has {len(positions):,} positions, and a request takes {MOST:,}: split the file"
        )
    for row, (ra, dec) in enumerate(positions, 1):
        if not (0 <= ra <= 360 and -90 <= dec <= 90):  # nor is NaN
            raise SetupError(f"{file}: row {row} is not on the sky: {ra}, {dec}")
    return positions


def _table(file: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq  # noqa: TID251 - files of others have no checksums of ours
    from pyarrow import csv

    try:
        with file.open("rb") as opened:
            if opened.read(4) == b"PAR1":
                return pq.read_table(file)
        return csv.read_csv(file)
    except OSError as error:
        raise SetupError(f"cannot read {file}: {error.strerror or error}") from None
    except (pa.ArrowException, ValueError) as error:
        raise SetupError(f"{file} is no CSV or Parquet file: {error}") from None


def _column(
    table: pa.Table, by_name: dict[str, int], names: tuple[str, ...], file: Path
) -> list[float]:
    """The numbers of the first column that has one of these names; NaN for null."""
    import pyarrow as pa

    number = next((by_name[name] for name in names if name in by_name), None)
    if number is None:
        known = ", ".join(table.column_names[:10])
        raise SetupError(f"{file} has no column {names[0]!r} (or {', '.join(names[1:])}): {known}")
    try:
        values = table.column(number).cast(pa.float64()).fill_null(float("nan"))
    except pa.ArrowException:
        name = table.column_names[number]
        raise SetupError(f"{file}: the column {name!r} is not in degrees, as numbers") from None
    found: list[float] = values.to_pylist()
    return found
