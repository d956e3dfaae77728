"""What describes a HATS collection: its properties, lists of pixels, and index of object ids.

LSDB opens it as one: the objects, their margin, and the index. Moving objects have a catalogue of
their own, beside it.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from stampede.errors import Damaged, NotFound
from stampede.handlers.hats.files import (
    MARGIN,
    MOVING,
    OBJECTS,
    Cell,
    Pixel,
    State,
    checksum_of,
    write_state,
)
from stampede.handlers.hats.partitions import INDEX, INDEX_ORDER
from stampede.handlers.hats.partitions import MARGIN as MARGIN_ARCSEC
from stampede.store.integrity.verified_objects import footer_of
from stampede.store.objects.object_store import Objects
from stampede.store.parquet.checksums import (
    BODY_PLACEHOLDER,
    FileMetaData,
    open_file,
    write,
    write_footers,
)

IDS = "objects_index"
"""The catalogue that finds the pixels of object ids."""
IDS_OF_PART = 65_536
"""Ids in a file of the index, on average."""
_MEMBERS = {
    "hats_primary_table_url": OBJECTS,
    "all_margins": MARGIN,
    "default_margin": MARGIN,
    "all_indexes": f"object_id {IDS}",
    "default_index": "object_id",
}
"""What LSDB opens with the collection."""
_OURS = re.compile(
    rf"(({OBJECTS}|{MARGIN}|{MOVING}|{IDS})/)?"  # formats up to 4 had no folder
    r"(dataset/(Norder=\d+/Dir=\d+/Npix=\d+\.parquet|index/[^/]+\.parquet|_(common_)?metadata)"
    r"|partition_info\.csv|(hats\.)?properties)"
)


class Published(NamedTuple):
    """What was published.

    Order of the finest pixels of objects, and how many pixels; pixels written, of margins and
    moving objects too; objects and points; how many objects move, which are not among these.
    """

    order: int
    pixels: int
    written: int
    objects: int
    points: int
    moving: int


def finish(
    files: Objects,
    name: str,
    state: State,
    footers: Mapping[Cell, FileMetaData],
    written: int,
    ids: pa.Table,
) -> Published:
    """Write what describes the collection; then delete what it lacks; last, what it was made of.

    Parameters
    ----------
    footers
        Of all pixels.
    written
        How many pixels were written.
    ids
        Every object with `object_id`, and `Norder` and `Npix` of its pixel.
    """
    kept = {cell.key for cell in state.pixels}
    for catalogue in (OBJECTS, MARGIN, MOVING):
        pixels = {cell: state.pixels[cell] for cell in sorted(state.pixels) if cell[0] == catalogue}
        if pixels or (footers and catalogue != MOVING):
            kept |= _describe(files, catalogue, name, pixels, footers)
    if footers:
        kept |= _write_index(files, name, ids)
        _put_properties(files, "collection.properties", {"obs_collection": name, **_MEMBERS})
    _delete_others(files, kept)
    write_state(files, state)
    return _published(state, written)


def _published(state: State, written: int) -> Published:
    fixed = {cell: pixel for cell, pixel in state.pixels.items() if cell.catalogue == OBJECTS}
    return Published(
        max((cell.order for cell in fixed), default=0),
        len(fixed),
        written,
        sum(pixel.objects for pixel in fixed.values()),
        sum(pixel.points for pixel in fixed.values()),
        sum(pixel.objects for cell, pixel in state.pixels.items() if cell.catalogue == MOVING),
    )


def _describe(
    files: Objects,
    catalogue: str,
    name: str,
    pixels: Mapping[Cell, Pixel],
    footers: Mapping[Cell, FileMetaData],
) -> set[str]:
    """Write schema, footers, list and properties of a catalogue. Returns the keys."""
    schema = next(iter(footers.values())).schema.to_arrow_schema().remove_metadata()
    text = "".join(f"{cell.order},{cell.number}\n" for cell in pixels)
    list_key = f"{catalogue}/partition_info.csv"
    files.put(list_key, f"Norder,Npix\n{text}".encode())
    properties: dict[str, object] = {
        "obs_collection": name if catalogue == OBJECTS else f"{name}_{catalogue}",
        "dataproduct_type": "margin" if catalogue == MARGIN else "object",
        "hats_nrows": sum(pixel.objects for pixel in pixels.values()),
        "hats_col_ra": "ra",
        "hats_col_dec": "dec",
        "hats_col_healpix": INDEX,
        "hats_col_healpix_order": INDEX_ORDER,
        "hats_npix_suffix": ".parquet",
        "hats_order": max((cell.order for cell in pixels), default=0),
    }
    if catalogue == MARGIN:
        properties |= {"hats_primary_table_url": OBJECTS, "hats_margin_threshold": MARGIN_ARCSEC}
    keys = _put_metadata(files, catalogue, schema, [footers[cell] for cell in pixels])
    return {list_key, *keys, *_put_table(files, catalogue, properties)}


def _write_index(files: Objects, name: str, ids: pa.Table) -> set[str]:
    """Write the index of ids; files that are there as they would be written stay.

    A file ends with an id whose checksum says so. So a new object changes one file, and the files
    do not depend on what was there before.
    """
    ids = ids.sort_by([(column, "ascending") for column in ids.column_names])
    names = ids["object_id"].to_pylist()
    last = {name: n for n, name in enumerate(names, 1)}  # two surveys may have an id
    ends = [n for name, n in last.items() if not crc32(name.encode()) % IDS_OF_PART]
    cuts = sorted({0, *ends, len(names)})
    footers, keys = [], set()
    for begin, end in pairwise(cuts):
        within = f"index/{names[begin - 1] if begin else 'first'}.parquet"
        key = f"{IDS}/dataset/{within}"
        footers.append(_write_part(files, key, ids.slice(begin, end - begin)))
        footers[-1].set_file_path(within)
        keys.add(key)
    properties = {
        "obs_collection": f"{name}_{IDS}",
        "dataproduct_type": "index",
        "hats_nrows": len(names),
        "hats_primary_table_url": OBJECTS,
        "hats_index_column": "object_id",
    }
    keys |= _put_metadata(files, IDS, ids.schema, footers)
    return keys | _put_table(files, IDS, properties)


def _write_part(files: Objects, key: str, rows: pa.Table) -> FileMetaData:
    data = write(rows, BODY_PLACEHOLDER, compression="zstd")
    footer = open_file(key, data).metadata
    try:
        same = checksum_of(footer_of(files, files.head(key))) == checksum_of(footer)
    except (Damaged, NotFound):
        same = False
    if not same:
        files.put(key, memoryview(data))
    return footer


def _put_metadata(
    files: Objects, catalogue: str, schema: pa.Schema, footers: list[FileMetaData]
) -> set[str]:
    """Write the schema of a catalogue, and the footers of all its files in order."""
    keys = set()
    for name, some in (("_common_metadata", None), ("_metadata", footers)):
        keys.add(key := f"{catalogue}/dataset/{name}")
        files.put(key, write_footers(schema, some))
    return keys


def _put_table(files: Objects, catalogue: str, properties: Mapping[str, object]) -> set[str]:
    """Write the properties of a catalogue, under the new and the old name of their file."""
    keys = {f"{catalogue}/{name}" for name in ("hats.properties", "properties")}
    common = {"hats_frame": "icrs", "hats_version": "v1.0", "hats_builder": "stampede"}
    for key in keys:
        _put_properties(files, key, {**properties, **common})
    return keys


def _put_properties(files: Objects, key: str, properties: Mapping[str, object]) -> None:
    files.put(key, "".join(f"{name}={value}\n" for name, value in properties.items()).encode())


def _delete_others(files: Objects, keys: Iterable[str]) -> None:
    """Delete files of ours that are none of `keys`, and first those that list them."""
    there = [info.key for info in files.list("") if _OURS.fullmatch(info.key)]
    for key in sorted(set(there) - set(keys), key=lambda key: (key.endswith(".parquet"), key)):
        files.delete(key)
