"""The pixels of a HATS collection, in a folder or a bucket, and of what Stampede made them.

The IVOA note HATS 1.0 (https://www.ivoa.net/documents/Notes/HATS/) describes all but `STATE`.
"""

import json
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
)

OBJECTS, MARGIN, MOVING = "objects", "objects_margin", "moving"
"""The catalogues of the collection: a folder each."""
STATE, FORMAT = "stampede.json", 5


class Cell(NamedTuple):
    """A pixel of one of the catalogues: order, and number in the nested scheme."""

    catalogue: str
    order: int
    number: int

    @property
    def within(self) -> str:
        """The path of its file in the folder `dataset`."""
        folder = self.number // 10_000 * 10_000
        return f"Norder={self.order}/Dir={folder}/Npix={self.number}.parquet"

    @property
    def key(self) -> str:
        """The key of its file."""
        return f"{self.catalogue}/dataset/{self.within}"


class Pixel(NamedTuple):
    """Objects and points of a pixel, and the checksum of its footer, which has that of the rest.

    The checksum tells a file from all others, also from an older one of the same pixel.
    """

    objects: int
    points: int
    checksum: str


class State(NamedTuple):
    """Of what a collection was made: its pixels, the keys of the runs, their coverage.

    `programids` are the programmes whose points it may have; None: all of them.
    """

    pixels: dict[Cell, Pixel]
    runs: frozenset[str]
    coverage: Coverage
    programids: tuple[int, ...] | None = None


def write_pixel(files: Objects, cell: Cell, rows: pa.Table) -> Pixel:
    """Write a pixel with objects."""
    data = write(rows, BODY_PLACEHOLDER, compression="zstd")
    files.put(cell.key, memoryview(data))
    checksum = checksum_of(open_file(cell.key, data).metadata)
    return Pixel(rows.num_rows, pc.sum(rows["points"]).as_py(), checksum)


def read_pixel(files: Objects, cell: Cell, pixel: Pixel) -> pa.Table:
    """The objects of a pixel, every checksum verified.

    Raises `NotFound`, `StoreDown`, and `Damaged` if its file is not the one that was written.
    """
    file = open_file(cell.key, files.get(cell.key))
    _check_pixel(cell.key, file.metadata, pixel)
    return read_file(cell.key, file)


def read_footer(files: Objects, cell: Cell, pixel: Pixel) -> FileMetaData:
    """The footer of a pixel, verified. Raises as `read_pixel`."""
    footer = footer_of(files, files.head(cell.key))
    _check_pixel(cell.key, footer, pixel)
    footer.set_file_path(cell.within)
    return footer


def _check_pixel(key: str, footer: FileMetaData, pixel: Pixel) -> None:
    if checksum_of(footer) != pixel.checksum:
        raise Damaged(f"{key} is not the pixel that was written: it is another one, or older")


def checksum_of(footer: FileMetaData) -> str:
    """The checksum in a footer."""
    return str(footer.metadata[CRC32.encode()].decode())


def write_state(files: Objects, state: State) -> None:
    """Write of what the collection was made, for `read_state`."""
    document = {
        "format": FORMAT,
        "pixels": [[*cell, *pixel] for cell, pixel in sorted(state.pixels.items())],
        "runs": sorted(state.runs),
        "coverage": json.loads(state.coverage.to_json()),
        "programids": state.programids,
    }
    files.put(STATE, json.dumps(document).encode())


def read_state(files: Objects) -> State | None:
    """What the collection was made of; None if there is none, or another version made it.

    Raises `SetupError` if it is damaged.
    """
    try:
        saved = json.loads(files.get(STATE))
        if saved["format"] != FORMAT:
            return None
        coverage = Coverage.from_json(json.dumps(saved["coverage"]))
        pixels = {Cell(*each[:3]): Pixel(*each[3:]) for each in saved["pixels"]}
        programids = saved["programids"] and tuple(saved["programids"])
        return State(pixels, frozenset(saved["runs"]), coverage, programids)
    except NotFound:
        return None
    except (ValueError, LookupError, TypeError):
        raise SetupError(f"{STATE} of the catalogue is damaged: write all with --again") from None


def claim(files: Objects) -> None:
    """Mark an empty place as that of a collection. Raises `SetupError` if other files are there."""
    if find(files, STATE):
        return
    if other := next(iter(files.list("")), None):
        raise SetupError(f"{other.key} is there, of no catalogue of Stampede: give an empty place")
    files.put(STATE, json.dumps({"format": 0}).encode())  # none yet
