"""Packs: many images in one Parquet file that any reader opens.

A ranged GET fetches the cutouts of an alert, another their tail: see `pack_images`.
"""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.offsets.coverage import COVERAGE, Coverage
from stampede.store.packs.images import (
    cut,
    cutout_columns,
    cutout_places,
    image_column,
    image_places,
    tail_frames,
)
from stampede.store.packs.pack_name import Merged, PackName, night_of
from stampede.store.packs.stored_images import claimed_places, stored_cutouts, stored_images
from stampede.store.parquet.checksums import (
    PARQUET_ERRORS,
    PLACEHOLDER,
    FileMetaData,
    open_file,
    read_file,
    seal,
)
from stampede.store.parquet.writer import Range, small, write
from stampede.store.programmes.keys import programids_of
from stampede.store.runs.merge import is_sorted, one_array, sort_unique
from stampede.store.runs.run_name import name_of
from stampede.store.runs.schema import CUTOUT_PACKS, PackSpec

# Threads that pack at once would pass the lock of Python to and fro at each of 1,800 checksums.
# Then a pack of 900 gzipped stamps takes 39 ms of CPU and 1,160 changes of thread (four threads),
# or 34 and 280 (two). In turn it takes 23 and 30. SHA-256, 9 of the 23, runs beside.
_WRITING = threading.Lock()


TableRows: TypeAlias = Callable[[list[int]], pa.Table | None]
INPUTS = "stampede.inputs"
"""Metadata of merged packs and raw alerts: the keys of what they were merged of, JSON."""


class Pack(NamedTuple):
    """A pack and where its images lie in it: `locations` has a row per image.

    The SHA-256 of 13 MB takes 7 ms of the 95 that storing takes in all processes. It is computed
    once, for the name (as `runs.digest`) and for the signature of the PUT.
    """

    key: str
    data: pa.Buffer
    locations: pa.Table
    sha256: str


class Content(NamedTuple):
    """What the bytes of a pack hold.

    Attributes
    ----------
    rows
        The rows in the order of the pack; those of cutouts are without `fits`, and `tail` is a
        dictionary.
    file
        The footer.
    """

    pack: Pack
    coverage: Coverage
    rows: pa.Table
    file: FileMetaData


def expired(key: str, days: int | None, now_mjd: float) -> bool:
    """Whether a pack is past its retention: `days` after the end of its night; None keeps all."""
    night = night_of(key)
    return night is not None and is_past(night, days, now_mjd)


def is_past(night: int, days: int | None, now_mjd: float) -> bool:
    """Whether a night is past the retention of its packs: it ended more than `days` ago."""
    return days is not None and night < int(now_mjd) - days


def is_whole(key: str, data: bytes | memoryview | pa.Buffer) -> bool:
    """Whether the bytes of a pack have the digest in its name."""
    return _is_named(key, sha256(data).hexdigest())


def _is_named(key: str, whole: str) -> bool:
    name = PackName.parse(key)
    return name is not None and name.digest == name_of(whole)


def check_digest(key: str, data: bytes | memoryview | pa.Buffer) -> str:
    """The SHA-256 of a pack. Raises `Damaged` if its bytes do not have the digest in its name."""
    whole = sha256(data).hexdigest()
    if not _is_named(key, whole):
        raise Damaged(f"{key} is damaged: its bytes do not have the digest in its name")
    return whole


def write_pack(
    rows: pa.Table,
    coverage: Coverage,
    spec: PackSpec = CUTOUT_PACKS,
    programids: Iterable[int] = (),
    merged: Merged | None = None,
    inputs: Sequence[str] = (),
) -> Pack:
    """Pack `rows`, which have the columns of `spec.rows` and hold the alerts of `coverage`.

    The same rows, in any order, with the same coverage give the same bytes and so the same key,
    if the same version of `zstandard` compresses them.

    Parameters
    ----------
    programids
        The observing programmes of the alerts; none if their survey has none.
    merged, inputs
        Of a merged pack: what its name says, and the keys of the packs that it was merged of.
    """
    metadata = footer_pairs(coverage, inputs)
    with _WRITING:
        rows, data, places = _written(rows, metadata, spec)
    return located(rows, data, sha256(data).hexdigest(), places, spec, programids, merged)


def footer_pairs(coverage: Coverage, inputs: Sequence[str] = ()) -> dict[str, str]:
    """The metadata in the footer of a pack, for `seal` to complete."""
    pairs = PLACEHOLDER | {COVERAGE.decode(): coverage.to_json()}
    return pairs | {INPUTS: json.dumps(sorted(inputs))} if inputs else pairs


def read_rows(
    data: bytes | memoryview | pa.Buffer, key: str | None = None
) -> tuple[pa.Table, Coverage]:
    """The rows of a pack, sorted, and the coverage in its footer; every checksum is verified.

    Rows of cutouts are `PACKED_CUTOUT`, with `tail` as a dictionary.

    Raises `Damaged`, also if `key` is given and its digest is not that of `data`.
    """
    if key is not None:
        check_digest(key, data)
    return _read(data, key)[:2]


def read_small_columns(
    data: bytes | memoryview | pa.Buffer, image: str, key: str | None = None
) -> tuple[pa.Table, Coverage, str]:
    """As `read_rows`, without the column of images or packets; and the SHA-256 of the pack.

    The digest alone proves that column.
    """
    whole = sha256(data).hexdigest() if key is None else check_digest(key, data)
    rows, coverage, _ = _read(data, key, image)
    return rows, coverage, whole


def read_pack(
    data: bytes | memoryview | pa.Buffer,
    spec: PackSpec = CUTOUT_PACKS,
    key: str | None = None,
    table_rows: TableRows | None = None,
) -> tuple[Pack, Coverage]:
    """A pack as `write_pack` returned it, from its bytes alone.

    Parameters
    ----------
    table_rows
        Given the alert ids of a pack of cutouts, the rows of its table; None if it has none. If
        they fit the pages, no page is decompressed, and the CRC-32 of files are those of the table.

    Raises `Damaged` as `read_rows`, and what `table_rows` raises.
    """
    return read_content(data, spec, key, table_rows)[:2]


def read_content(
    data: bytes | memoryview | pa.Buffer,
    spec: PackSpec = CUTOUT_PACKS,
    key: str | None = None,
    table_rows: TableRows | None = None,
) -> Content:
    """As `read_pack`, with the rows and the footer."""
    whole = sha256(data).hexdigest() if key is None else check_digest(key, data)
    name = PackName.parse(key or "")
    rows, coverage, file = _read(data, key, spec.image if spec is CUTOUT_PACKS else "")
    view = memoryview(data).cast("B")
    try:
        if spec is CUTOUT_PACKS:
            places = _claimed(rows, file, view, key, table_rows) if key and table_rows else None
            places = places or cutout_places(*stored_cutouts(rows, file, view))
        else:
            images = one_array(rows[spec.image])
            places = image_places(images, stored_images(file, view), view)
        merged = name.merged if name else None
        programids = programids_of(key or "")
        pack = located(rows, pa.py_buffer(data), whole, places, spec, programids, merged)
        return Content(pack, coverage, rows, file)
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key or 'the pack'} does not have the rows of a pack: {error}") from None


def _claimed(
    rows: pa.Table, file: FileMetaData, view: memoryview, key: str, table_rows: TableRows
) -> dict[str, pa.Array] | None:
    """Where cutouts lie as the table says; None if it does not say it of each, or not rightly."""
    claims = table_rows(rows["alert_id"].unique().to_pylist())
    if claims is None:
        return None
    here = pc.or_kleene(pc.is_null(claims["pack"]), pc.equal(claims["pack"], key))
    names = [name for name in CUTOUT_PACKS.rows.key if name in rows.column_names]
    claims = claims.filter(here).sort_by([(name, "ascending") for name in names])
    same = all(one_array(claims[name]).equals(one_array(rows[name])) for name in names)
    return claimed_places(rows, claims, file, view) if same else None


def _written(
    rows: pa.Table, metadata: Mapping[str, str], spec: PackSpec
) -> tuple[pa.Table, pa.Buffer, dict[str, pa.Array]]:
    """Sorted rows, their file, and where each image lies in it."""
    schema = spec.rows.schema
    rows = rows.select(schema.names).cast(schema)
    if not is_sorted(rows, spec.rows):
        rows = sort_unique(_movable(rows), spec.rows)
    images = one_array(rows[spec.image])
    columns = [small(field, one_array(rows[field.name])) for field in [*schema][:-1]]
    cutouts = cut(images, _messages(rows)) if spec is CUTOUT_PACKS else None
    columns += [image_column(images)] if cutouts is None else cutout_columns(cutouts)
    file = write(columns, rows.num_rows, metadata)
    data = seal(file.data)
    view = memoryview(data).cast("B")
    if cutouts is None:
        offset = file.bodies[-1][0].offset if rows.num_rows else 0
        return rows, data, image_places(images, offset, view)
    pages, tails = file.bodies[-2:] if rows.num_rows else ([], [Range(0, 0)])
    dictionary = view[tails[0].offset :][: tails[0].length]
    tail_places = tail_frames(dictionary, tails[0].offset)
    return rows, data, cutout_places(cutouts, pages, tail_places)


def inputs_in(name: str, metadata: FileMetaData) -> frozenset[str]:
    """The keys of the packs that a pack was merged of, by its footer; none of one as stored.

    Raises `Damaged`, which has its `name`.
    """
    try:
        return frozenset(map(str, json.loads(metadata.metadata.get(INPUTS.encode(), "[]"))))
    except PARQUET_ERRORS:
        raise Damaged(f"{name} does not have the footer of a pack") from None


def coverage_in(name: str, metadata: FileMetaData) -> Coverage:
    """The coverage in the footer of a pack. Raises `Damaged`, which has its `name`."""
    try:
        return Coverage.from_json(metadata.metadata[COVERAGE])
    except PARQUET_ERRORS:
        raise Damaged(f"{name} does not have the footer of a pack") from None


def _read(
    data: bytes | memoryview | pa.Buffer, key: str | None, without: str = ""
) -> tuple[pa.Table, Coverage, FileMetaData]:
    """The rows of a pack without one column, the coverage and the footer; no digest is compared."""
    name = key or "the pack"
    file = open_file(name, data)
    if "tail" in file.schema.names:
        file = open_file(name, data, read_dictionary=["tail"])
    columns = [column for column in file.schema.names if column != without]
    coverage = coverage_in(name, file.metadata)
    return read_file(name, file, columns), coverage, file.metadata


def located(
    rows: pa.Table,
    data: pa.Buffer,
    whole: str,
    places: dict[str, pa.Array],
    spec: PackSpec,
    programids: Iterable[int],
    merged: Merged | None,
) -> Pack:
    """A pack of these rows, whose bytes have the SHA-256 `whole` and its images at `places`."""
    mjd = rows["mjd"].to_numpy()
    night = int(mjd.max()) if len(mjd) else 0
    key = PackName.make(spec.prefix, night, whole, programids, merged).key
    schema = spec.locations.schema
    absent = places["length"].is_null()
    columns = {**places, "pack": pc.if_else(absent, None, pa.repeat(key, rows.num_rows))}
    if "redrawn" in schema.names:
        columns["redrawn"] = pa.nulls(rows.num_rows, pa.int32())
    for name in {"message_crc32", "drawn_from"} & {*schema.names} - {*rows.column_names}:
        columns[name] = pa.nulls(rows.num_rows, pa.uint32())  # an earlier pack
    located = [columns[name] if name in columns else rows[name] for name in schema.names]
    locations = pa.table(located, schema.names).cast(schema)
    return Pack(key, data, locations, whole)


def _movable(rows: pa.Table) -> pa.Table:
    """`rows` with copies of binary values in place of views, which Arrow cannot sort."""
    fields = [
        field.with_type(pa.binary()) if field.type == pa.binary_view() else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def _messages(rows: pa.Table) -> np.ndarray:
    """A number for each row, another one where another message begins: versions of an alert may be
    many, and a page of all would be too large to read."""
    numbers = pc.fill_null(rows["message_crc32"].cast(pa.int64()), -1)
    columns = [rows["alert_id"].to_numpy(), rows["survey"].to_numpy(), numbers.to_numpy()]
    other = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.cumsum(np.append([0] * bool(rows.num_rows), other))
