"""An archive that is a list of ids: Parquet or CSV, a file or a folder of files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq  # noqa: TID251 - files of others have no checksums of ours

from stampede.comparison.compare import Held, Place
from stampede.errors import SetupError
from stampede.proofs.leaves import ID_BYTES, WIDTH, ids_of, no_entries, united

COLUMNS = ("alert_id", "diaSourceId", "candid", "alertId", "diaSource.diaSourceId")
"""Names of the column with the ids, the first that a file has."""


def files_of_ids(path: Path) -> list[Path]:
    """The Parquet and CSV files that a path names or holds; none if it holds none."""
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [each for each in found if each.suffix in (".parquet", ".csv")]


class IdTables:
    """Ids in files. They say nothing of nights: each night of this store takes those that it knows.

    So what only the other archive has is told in the end, as of night 0.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.faults: list[str] = []
        ids = np.concatenate([_ids_in(path) for path in paths] or [np.zeros(0, np.int64)])
        each, counts = np.unique(ids, return_counts=True)
        self._left, self._twice = each, each[counts > 1]

    def nights(self) -> list[Place]:
        """None: it does not say."""
        return []

    def held(self, place: Place, ours: np.ndarray) -> tuple[np.ndarray, Held]:
        """See `Archive.held`."""
        here = ids_of(ours)
        found = np.intersect1d(self._left, here)
        twice = np.intersect1d(self._twice, here)
        self._left = np.setdiff1d(self._left, here)
        return ours, Held(_entries(found), False, twice)

    def rest(self) -> np.ndarray:
        """The ids that no night has taken."""
        return self._left


def _entries(ids: np.ndarray) -> np.ndarray:
    """Entries without digests."""
    entries = np.zeros((len(ids), WIDTH), np.uint8)
    entries[:, :ID_BYTES] = ids.astype(">i8").view(np.uint8).reshape(-1, ID_BYTES)
    return united(no_entries(), entries)


def _ids_in(path: Path) -> np.ndarray:
    """The ids in a file. Raises `SetupError`."""
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else pyarrow.csv.read_csv(path)
    except (OSError, pa.ArrowException) as error:
        raise SetupError(f"{path} cannot be read: {error}") from None
    name = next((name for name in COLUMNS if name in table.column_names), None)
    if name is None:
        raise SetupError(f"{path} has no column of ids: looked for {', '.join(COLUMNS)}")
    try:
        ids: np.ndarray = table[name].cast(pa.int64()).to_numpy()
    except pa.ArrowException as error:
        raise SetupError(f"{path}: {name} has what is no id: {error}") from None
    return ids
