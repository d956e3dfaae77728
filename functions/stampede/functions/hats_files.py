"""The files of a HATS catalogue, in a folder or a bucket, and of what Stampede made it.

The IVOA note HATS 1.0 (https://www.ivoa.net/documents/Notes/HATS/) describes all but `STATE`.
"""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stampede.errors import Damaged, NotFound, SetupError
from stampede.store.checked_parquet import (
    FileMetaData,
    open_file,
    read_file,
    write,
    write_footers,
)
from stampede.store.coverage import Coverage
from stampede.store.objects import Objects, find
from stampede.store.parquet_object import footer_of

INDEX, INDEX_ORDER = "_healpix_29", 29
DATASET, STATE, FORMAT = "dataset/", "stampede.json", 2
_PIXEL = re.compile(r"dataset/Norder=(\d+)/Dir=\d+/Npix=(\d+)\.parquet")


class Size(NamedTuple):
    """Objects and points of a pixel."""

    objects: int
    points: int


class Published(NamedTuple):
    """What was published: the order of the pixels, how many, and how many of them were written."""

    order: int
    pixels: int
    written: int
    objects: int
    points: int


class State(NamedTuple):
    """Of what a catalogue was made: order and sizes of its pixels, keys of runs, their coverage."""

    order: int
    sizes: dict[int, Size]
    runs: frozenset[str]
    coverage: Coverage


def key_of(order: int, number: int) -> str:
    """The key of a pixel."""
    return f"{DATASET}Norder={order}/Dir={number // 10_000 * 10_000}/Npix={number}.parquet"


def write_pixel(files: Objects, order: int, number: int, rows: pa.Table) -> Size:
    """Write a pixel with objects."""
    files.put(key_of(order, number), memoryview(write(rows, compression="zstd")))
    return Size(rows.num_rows, pc.sum(rows["points"]).as_py())


def read_pixel(files: Objects, order: int, number: int) -> pa.Table:
    """The objects of a pixel. Raises `Damaged` if its file is no such file."""
    key = key_of(order, number)
    try:
        return read_file(key, open_file(key, files.get(key)))
    except (Damaged, NotFound) as error:
        raise Damaged(f"{error.message}; write all with --again") from None


def numbers_of(files: Objects, order: int) -> set[int]:
    """The numbers of the pixels of an order that have a file."""
    found = (_PIXEL.fullmatch(info.key) for info in files.list(f"{DATASET}Norder={order}/"))
    return {int(each[2]) for each in found if each}


def finish(files: Objects, name: str, state: State, written: int) -> Published:
    """Write what describes the catalogue; then delete what it lacks; last, what it was made of."""
    numbers = sorted(state.sizes)
    keys = [key_of(state.order, number) for number in numbers]
    if footers := [_footer(files, key) for key in keys]:
        schema = footers[0].schema.to_arrow_schema().remove_metadata()
        for metadata, some in (("_common_metadata", None), ("_metadata", footers)):
            files.put(f"{DATASET}{metadata}", write_footers(schema, some))
    text = "".join(f"{state.order},{number}\n" for number in numbers)
    _put(files, "partition_info.csv", f"Norder,Npix\n{text}")
    objects, points = (sum(size[at] for size in state.sizes.values()) for at in (0, 1))
    properties = {
        "obs_collection": name,
        "dataproduct_type": "object",
        "hats_nrows": objects,
        "hats_col_ra": "ra",
        "hats_col_dec": "dec",
        "hats_col_healpix": INDEX,
        "hats_col_healpix_order": INDEX_ORDER,
        "hats_npix_suffix": ".parquet",
        "hats_order": state.order,
        "hats_frame": "icrs",
        "hats_version": "v1.0",
        "hats_builder": "stampede",
    }
    lines = "".join(f"{key}={value}\n" for key, value in properties.items())
    for key in ("hats.properties", "properties"):
        _put(files, key, lines)
    _delete_others(files, keys)
    document = {
        "format": FORMAT,
        "order": state.order,
        "sizes": {str(number): state.sizes[number] for number in numbers},
        "runs": sorted(state.runs),
        "coverage": json.loads(state.coverage.to_json()),
    }
    _put(files, STATE, json.dumps(document))
    return Published(state.order, len(keys), written, objects, points)


def read_state(files: Objects) -> State | None:
    """What the catalogue was made of; None if there is none, or another version made it.

    Raises `SetupError` if it is damaged.
    """
    try:
        saved = json.loads(files.get(STATE))
        if saved["format"] != FORMAT:
            return None
        coverage = Coverage.from_json(json.dumps(saved["coverage"]))
        sizes = {int(number): Size(*size) for number, size in saved["sizes"].items()}
        return State(saved["order"], sizes, frozenset(saved["runs"]), coverage)
    except NotFound:
        return None
    except (ValueError, LookupError, TypeError):
        raise SetupError(f"{STATE} of the catalogue is damaged: write all with --again") from None


def claim(files: Objects) -> None:
    """Mark an empty place as that of a catalogue. Raises `SetupError` if other files are there."""
    if find(files, STATE):
        return
    if other := next(iter(files.list("")), None):
        raise SetupError(f"{other.key} is there, of no catalogue of Stampede: give an empty place")
    _put(files, STATE, json.dumps({"format": 0}))  # none yet


def _footer(files: Objects, key: str) -> FileMetaData:
    footer = footer_of(files, files.head(key)).metadata
    footer.set_file_path(key.removeprefix(DATASET))
    return footer


def _delete_others(files: Objects, keys: Iterable[str]) -> None:
    kept = set(keys)
    for key in [info.key for info in files.list(DATASET)]:
        if _PIXEL.fullmatch(key) and key not in kept:
            files.delete(key)


def _put(files: Objects, key: str, text: str) -> None:
    files.put(key, text.encode())
