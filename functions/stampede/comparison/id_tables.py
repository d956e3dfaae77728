"""An archive that is a list of ids: Parquet, CSV, or a HATS catalogue."""

from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from stampede.comparison.compare import Held, Place
from stampede.errors import SetupError
from stampede.ingest.tables import ENDINGS, TableFile, names_in, read_table
from stampede.proofs.leaves import ID_BYTES, WIDTH, ids_of, no_entries, united

COLUMNS = ("alert_id", "diaSourceId", "candid", "alertId")
"""Names of the column with the ids, the first that a file has; also within a nested column."""
PROPERTIES = ("hats.properties", "properties")
"""Names of the file that describes a HATS catalogue, the new one and the old one."""
KINDS = ("", "object", "source", "nested")
"""Kinds of HATS catalogues that have each row once; a margin repeats rows of its neighbours."""


def tables_of(files: Sequence[TableFile]) -> list[TableFile]:
    """The tables among files. Of HATS catalogues only their rows, and no margin or index.

    HATS: https://www.ivoa.net/documents/Notes/HATS/, "Properties file" and "Catalog types".
    """
    catalogues: dict[str, str] = {}
    for each in files:
        folder, _, name = each.name.rpartition("/")
        if name in PROPERTIES:
            properties = _properties(each)
            kind = properties.get("dataproduct_type", properties.get("catalog_type", ""))
            catalogues[folder] = kind
    return [
        each for each in files if each.name.endswith(ENDINGS) and _is_wanted(each.name, catalogues)
    ]


def _is_wanted(name: str, catalogues: dict[str, str]) -> bool:
    inside = [folder for folder in catalogues if name.startswith(f"{folder}/")]
    if not inside:
        return not catalogues
    folder = max(inside, key=len)
    within = PurePosixPath(name[len(folder) + 1 :])
    is_row = within.suffix == ".parquet" and any(part.startswith("Npix=") for part in within.parts)
    return is_row and catalogues[folder] in KINDS


def _properties(file: TableFile) -> dict[str, str]:
    with file.open() as opened:
        lines = opened.read().decode(errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


class IdTables:
    """Ids in files. They say nothing of nights: each night of this store takes those that it knows.

    So what only the other archive has is told in the end, as of night 0.
    """

    def __init__(self, files: Sequence[TableFile]) -> None:
        self.faults: list[str] = []
        ids = np.concatenate([_ids_in(each) for each in files] or [np.zeros(0, np.int64)])
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


def id_column(names: Sequence[str]) -> str | None:
    """The path of the column with ids; None if there is none."""
    found = (name for wanted in COLUMNS for name in names if wanted in name.split("."))
    return next(found, None)


def _ids_in(file: TableFile) -> np.ndarray:
    """The ids in a file. Raises `SetupError`."""
    name = id_column(names_in(file))
    if name is None:
        raise SetupError(f"{file.name} has no column of ids: looked for {', '.join(COLUMNS)}")
    column = read_table(file, [name]).column(0).combine_chunks()
    try:
        while pa.types.is_nested(column.type):  # of an object, all of its alerts
            is_struct = pa.types.is_struct(column.type)
            column = column.flatten()[0] if is_struct else column.flatten()
        ids: np.ndarray = column.drop_null().cast(pa.int64()).to_numpy()
    except pa.ArrowException as error:
        raise SetupError(f"{file.name}: {name} has what is no id: {error}") from None
    return ids
