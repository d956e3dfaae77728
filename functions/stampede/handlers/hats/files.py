"""The files of a HATS catalogue, in a folder or a bucket, and of what Stampede made it.

The IVOA note HATS 1.0 (https://www.ivoa.net/documents/Notes/HATS/) describes all but `STATE`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stampede.errors import Damaged, NotFound, SetupError
from stampede.store.integrity.verified_objects import footer_of
from stampede.store.objects.object_store import Objects, find
from stampede.store.offsets.coverage import Coverage
from stampede.store.parquet.checksums import (
    BODY_PLACEHOLDER,
    CRC32,
    FileMetaData,
    open_file,
    read_file,
    write,
    write_footers,
)

INDEX, INDEX_ORDER = "_healpix_29", 29
DATASET, STATE, FORMAT = "dataset/", "stampede.json", 4
_PIXEL = re.compile(r"dataset/Norder=(\d+)/Dir=\d+/Npix=(\d+)\.parquet")


class Pixel(NamedTuple):
    """Objects and points of a pixel, and the checksum of its footer, which has that of the rest.

    The checksum tells a file from all others, also from an older one of the same pixel.
    """

    objects: int
    points: int
    checksum: str


class Published(NamedTuple):
    """What was published: the order of the pixels, how many, and how many of them were written."""

    order: int
    pixels: int
    written: int
    objects: int
    points: int


class State(NamedTuple):
    """Of what a catalogue was made: order of its pixels, these, keys of runs, their coverage.

    `programids` are the programmes whose points it may have; None: all of them.
    """

    order: int
    pixels: dict[int, Pixel]
    runs: frozenset[str]
    coverage: Coverage
    programids: tuple[int, ...] | None = None


def key_of(order: int, number: int) -> str:
    """The key of a pixel."""
    return f"{DATASET}Norder={order}/Dir={number // 10_000 * 10_000}/Npix={number}.parquet"


def write_pixel(files: Objects, order: int, number: int, rows: pa.Table) -> Pixel:
    """Write a pixel with objects."""
    key, data = key_of(order, number), write(rows, BODY_PLACEHOLDER, compression="zstd")
    files.put(key, memoryview(data))
    checksum = _checksum(open_file(key, data).metadata)
    return Pixel(rows.num_rows, pc.sum(rows["points"]).as_py(), checksum)


def read_pixel(files: Objects, order: int, number: int, pixel: Pixel) -> pa.Table:
    """The objects of a pixel, every checksum verified.

    Raises `NotFound`, `StoreDown`, and `Damaged` if its file is not the one that was written.
    """
    key = key_of(order, number)
    file = open_file(key, files.get(key))
    _check_pixel(key, file.metadata, pixel)
    return read_file(key, file)


def read_footer(files: Objects, order: int, number: int, pixel: Pixel) -> FileMetaData:
    """The footer of a pixel, verified. Raises as `read_pixel`."""
    key = key_of(order, number)
    footer = footer_of(files, files.head(key))
    _check_pixel(key, footer, pixel)
    footer.set_file_path(key.removeprefix(DATASET))
    return footer


def _check_pixel(key: str, footer: FileMetaData, pixel: Pixel) -> None:
    if _checksum(footer) != pixel.checksum:
        raise Damaged(f"{key} is not the pixel that was written: it is another one, or older")


def _checksum(footer: FileMetaData) -> str:
    return str(footer.metadata[CRC32.encode()].decode())


def finish(
    files: Objects, name: str, state: State, footers: Mapping[int, FileMetaData], written: int
) -> Published:
    """Write what describes the catalogue; then delete what it lacks; last, what it was made of.

    `footers` are those of all its pixels.
    """
    numbers = sorted(state.pixels)
    objects = sum(pixel.objects for pixel in state.pixels.values())
    points = sum(pixel.points for pixel in state.pixels.values())
    if numbers:
        _put_metadata(files, [footers[number] for number in numbers])
    text = "".join(f"{state.order},{number}\n" for number in numbers)
    _put(files, "partition_info.csv", f"Norder,Npix\n{text}")
    _put_properties(files, name, state.order, objects)
    _delete_others(files, [key_of(state.order, number) for number in numbers])
    _put_state(files, state)
    return Published(state.order, len(numbers), written, objects, points)


def _put_metadata(files: Objects, footers: Sequence[FileMetaData]) -> None:
    """Write the schema of the catalogue, and the footers of all its pixels in order."""
    schema = footers[0].schema.to_arrow_schema().remove_metadata()
    for key, some in (("_common_metadata", None), ("_metadata", footers)):
        files.put(f"{DATASET}{key}", write_footers(schema, some))


def _put_properties(files: Objects, name: str, order: int, objects: int) -> None:
    """Write the properties of the catalogue, under the new and the old name of their file."""
    properties = {
        "obs_collection": name,
        "dataproduct_type": "object",
        "hats_nrows": objects,
        "hats_col_ra": "ra",
        "hats_col_dec": "dec",
        "hats_col_healpix": INDEX,
        "hats_col_healpix_order": INDEX_ORDER,
        "hats_npix_suffix": ".parquet",
        "hats_order": order,
        "hats_frame": "icrs",
        "hats_version": "v1.0",
        "hats_builder": "stampede",
    }
    lines = "".join(f"{key}={value}\n" for key, value in properties.items())
    for key in ("hats.properties", "properties"):
        _put(files, key, lines)


def _put_state(files: Objects, state: State) -> None:
    """Write of what the catalogue was made, for `read_state`."""
    document = {
        "format": FORMAT,
        "order": state.order,
        "pixels": {str(number): state.pixels[number] for number in sorted(state.pixels)},
        "runs": sorted(state.runs),
        "coverage": json.loads(state.coverage.to_json()),
        "programids": state.programids,
    }
    _put(files, STATE, json.dumps(document))


def read_state(files: Objects) -> State | None:
    """What the catalogue was made of; None if there is none, or another version made it.

    Raises `SetupError` if it is damaged.
    """
    try:
        saved = json.loads(files.get(STATE))
        if saved["format"] != FORMAT:
            return None
        coverage = Coverage.from_json(json.dumps(saved["coverage"]))
        pixels = {int(number): Pixel(*pixel) for number, pixel in saved["pixels"].items()}
        programids = saved["programids"] and tuple(saved["programids"])
        return State(saved["order"], pixels, frozenset(saved["runs"]), coverage, programids)
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


def _delete_others(files: Objects, keys: Iterable[str]) -> None:
    kept = set(keys)
    for key in [info.key for info in files.list(DATASET)]:
        if _PIXEL.fullmatch(key) and key not in kept:
            files.delete(key)


def _put(files: Objects, key: str, text: str) -> None:
    files.put(key, text.encode())
