"""The points of many objects, in groups that fit into memory, by one pass over the table.

A run is sorted by object id, and a pixel's objects have any ids: to look up each pixel would read
the whole table for each. So rows go to a temporary file per group of pixels first.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.errors import Damaged, NotFound, SetupError, StoreDown
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table

MOST_ROWS = 1_000_000
"""Points of a group; versions count. It takes up to 700 bytes of memory for each."""
FEW = 1_000
"""Objects that are looked up, which reads less than the table."""
READ_ROWS = 100_000
"""Points that are read at once."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def points_of(
    table: Table, pixels: Sequence[pa.Table], most: int = MOST_ROWS
) -> Iterator[tuple[range, pa.Table]]:
    """The points of the objects of some pixels.

    Parameters
    ----------
    table
        The table `detections`, refreshed.
    pixels
        Of each pixel its objects: rows with `object_id` and `survey`. An object may be in several.

    Yields
    ------
    range, pa.Table
        Pixels that follow each other, and all points of their objects, one version of each, without
        withdrawn ones, in the order of the key.

    Raises
    ------
    SetupError
        If the temporary files cannot be written.
    Damaged, StoreDown
        If points cannot be read.
    """
    ids = sorted({name for rows in pixels for name in rows["object_id"].to_pylist()})
    few = len(ids) <= FEW
    found = table.lookup(ids) if few else DETECTIONS.no_rows
    if table.quarantined() or table.listing.omitted:
        for key, why in table.lacking(ids).items():
            raise Damaged(f"{key}: {why}; the catalogue would lack points")
    if few:
        yield range(len(pixels)), _shown(found)
        return
    parts = table.runs()
    # A pixel too many in a group costs memory, one too few a little time.
    objects = np.cumsum([rows.num_rows for rows in pixels])
    rows = sum(table.reader.index(part).rows.sum() for part in parts)
    share = most * objects[-1] / max(rows, 1)
    group_of_pixel = np.concatenate([[0], objects[:-1] // max(share, 1)]).astype(np.int32)
    names, group_of_name = _sorted_names(pixels, group_of_pixel)
    try:
        with TemporaryDirectory(prefix="stampede-hats-") as folder:
            files = _spill(table, parts, names, group_of_name, Path(folder))
            for group in range(int(group_of_pixel[-1]) + 1):
                first, last = np.searchsorted(group_of_pixel, [group, group + 1])
                if first < last:
                    yield range(first, last), _merged(files.get(group))
    except OSError as error:
        raise SetupError(f"cannot write temporary files: {error.strerror or error}") from None


def _spill(
    table: Table, parts: Sequence[RunInfo], names: np.ndarray, groups: np.ndarray, folder: Path
) -> dict[int, Path]:
    """Write the rows of each group to a file."""
    files: dict[int, Path] = {}
    with ExitStack() as stack:
        writers: dict[int, pa.ipc.RecordBatchFileWriter] = {}
        for rows in _rows_of(table, parts):
            encoded = _names_of(rows).combine_chunks().dictionary_encode()
            found = _texts(encoded.dictionary)
            first, end = (np.searchsorted(names, found, side) for side in ("left", "right"))
            while (first < end).any():  # an object of several pixels may be in several groups
                at = np.minimum(first, len(names) - 1)
                group_of_found = np.where(first < end, groups[at], -1)
                group_of_row = group_of_found[encoded.indices.to_numpy()]
                for group in np.unique(group_of_row[group_of_row >= 0]).tolist():
                    if group not in writers:
                        files[group] = folder / f"{group}.arrow"
                        writer = pa.ipc.new_file(files[group], rows.schema, options=_OPTIONS)
                        writers[group] = stack.enter_context(writer)
                    writers[group].write_table(rows.filter(pa.array(group_of_row == group)))
                first = first + 1
    return files


def _rows_of(table: Table, parts: Sequence[RunInfo]) -> Iterator[pa.Table]:
    for part in parts:
        try:
            file = table.reader.open(part)
            ends = np.cumsum(table.reader.index(part).rows)
            for numbers in np.split(
                np.arange(len(ends)), np.flatnonzero(np.diff(ends // READ_ROWS)) + 1
            ):
                if len(numbers):
                    yield pa.concat_tables(file.read(numbers.tolist()))
        except Damaged as error:
            raise Damaged(f"{error.message}; the catalogue would lack points") from None
        except NotFound:
            raise StoreDown(f"{part.key} was merged meanwhile: publish again") from None


def _merged(file: Path | None) -> pa.Table:
    if file is None:
        return DETECTIONS.no_rows
    with pa.memory_map(str(file)) as source:
        return _shown(sort_unique(pa.ipc.open_file(source).read_all(), DETECTIONS))


def _shown(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(rows["withdrawn"])).combine_chunks()


def _sorted_names(
    pixels: Sequence[pa.Table], group_of_pixel: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The names of all objects in order, and the group of each; a pair is there once."""
    names = np.concatenate([_texts(_names_of(rows).combine_chunks()) for rows in pixels])
    groups = np.repeat(group_of_pixel, [rows.num_rows for rows in pixels])
    order = np.lexsort((groups, names))
    names, groups = names[order], groups[order]
    new = np.append(True, (names[1:] != names[:-1]) | (groups[1:] != groups[:-1]))
    return names[new], groups[new]


def _names_of(rows: pa.Table) -> pa.ChunkedArray:
    """Objects of two surveys may have the same id."""
    return pc.binary_join_element_wise(rows["object_id"], rows["survey"], "/")


def _texts(names: pa.Array) -> np.ndarray:
    """As numpy's bytes, which have one width."""
    return np.array([name.encode() for name in names.to_pylist()], dtype=bytes)
