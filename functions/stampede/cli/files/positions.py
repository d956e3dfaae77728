"""Positions in a file, for a cross-match: `stampede get match`."""

from __future__ import annotations

from functools import partial
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
    from stampede.ingest.tables import TableFile, names_in, read_table

    source = TableFile(str(file), partial(file.open, "rb"))
    names = names_in(source)
    columns = [_name(names, wanted, file) for wanted in (RA, DEC)]
    table = read_table(source, columns)
    values = [_numbers(table, name, file) for name in columns]
    positions = [list(each) for each in zip(*values, strict=True)]
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


def _name(names: list[str], wanted: tuple[str, ...], file: Path) -> str:
    """The name of the first column that has one of the wanted ones."""
    from stampede.ingest.tables import first_of

    if (name := first_of(wanted, names)) is None:
        known = ", ".join(names[:10])
        raise SetupError(
            f"{file} has no column {wanted[0]!r} (or {', '.join(wanted[1:])}): {known}"
        )
    return name


def _numbers(table: pa.Table, name: str, file: Path) -> list[float]:
    """The numbers of a column; NaN for null."""
    import pyarrow as pa

    try:
        values = table[name].cast(pa.float64()).fill_null(float("nan"))
    except pa.ArrowException:
        raise SetupError(f"{file}: the column {name!r} is not in degrees, as numbers") from None
    found: list[float] = values.to_pylist()
    return found
