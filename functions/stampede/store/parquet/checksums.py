"""Parquet files whose every byte can be checked: pages by Parquet's own CRC, the footer by ours.

Parquet stores a CRC-32 of each page, which other readers check too, but nothing guards the footer.
So the footer holds a pair `stampede.crc32`: sixteen hexadecimal digits, the CRC-32 of the footer's
bytes before the pair, then of those after it. Run metadata comes after it, so the second half is
enough for a reader that has only the footer's end. `stampede.format` follows: an object of a later
format is refused by that name, not as damaged bytes.

CRCs are computed by isal: 23 GB/s, where zlib makes 2.1.

This module alone imports `pyarrow.parquet`; ruff forbids it elsewhere. So whatever else reads
Parquet verifies it, and whatever writes it gives each page its CRC.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from isal import isal_zlib
from pyarrow.parquet import FileMetaData as FileMetaData  # what other modules name too
from pyarrow.parquet import ParquetFile as ParquetFile

from stampede.errors import Damaged

MIN_BYTES = 12
"""Of a Parquet file: its magic number twice, and the length of its footer."""
FORMAT = 3
"""The latest format of objects that this version reads."""
_FORMAT = "stampede.format"
CRC32 = "stampede.crc32"
PLACEHOLDER = {CRC32: "0" * 16, _FORMAT: "1"}
"""Metadata that a writer adds to a file, for `seal` to complete. Most objects have format 1."""
PACKED = {_FORMAT: "2"}
"""Instead, of an object that keeps the offsets of a run packed (`runs/packed_coverage.py`)."""
STORED = {_FORMAT: "3"}
"""Instead, of a checkpoint that leaves the offsets of a run in an offset file."""
BODY = "stampede.body_crc32"
BODY_PLACEHOLDER = {BODY: "0" * 8}
"""The same for the CRC-32 of all bytes before the footer, of files whose name is no digest of them.

Parquet's CRCs leave out the headers of pages. A damaged header cannot go unnoticed where it
matters, but some of its bits are never read.
"""
MOST_PAIRS = 14
"""Pairs of metadata up to which the head of their list has two bytes, in Thrift."""
# What pyarrow raises for bytes that are not the Parquet they should be; its exceptions are also
# ValueError, KeyError, TypeError and the like.
PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, LookupError, TypeError)


def _pair(name: str, digits: int) -> bytes:
    """How a pair begins in Thrift's compact protocol: its name, then its value's length."""
    return b"\x18" + bytes([len(name)]) + name.encode() + b"\x18" + bytes([digits])


_PAIR, _BODY_PAIR = _pair(CRC32, 16), _pair(BODY, 8)
_SIZE = len(_PAIR) + 16


def seal(data: pa.Buffer) -> pa.Buffer:
    """Fill the checksums into a Parquet file that was written with `PLACEHOLDER`.

    Changes `data` in place, because a pack has many megabytes.
    """
    view = memoryview(data).cast("B")
    start = len(view) - 8 - int.from_bytes(view[-8:-4], "little")
    footer = bytearray(view[start:-8])
    pair, body = footer.rindex(_PAIR), footer.rfind(_BODY_PAIR)
    if body > pair:
        digits = body + len(_BODY_PAIR)
        footer[digits : digits + 8] = f"{isal_zlib.crc32(view[:start]):08x}".encode()
    digits = pair + len(_PAIR)
    footer[digits : digits + 16] = _digits(footer, pair)
    view[start:-8] = footer
    return data


def parse_verified(key: str, footer: bytes) -> FileMetaData:
    """A footer parsed, once its checksum was compared: pyarrow never sees a damaged one.

    Raises `Damaged`, which names `key`, also for a format that this version cannot read.
    """
    pair = footer.rfind(_PAIR)
    if pair < 0 or footer[pair + len(_PAIR) : pair + _SIZE] != _digits(footer, pair):
        raise Damaged(f"{key}: the footer does not have its checksum: it is damaged")
    try:
        metadata = metadata_of(footer)
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key} does not have a footer of Parquet: {error}") from None
    check_format(key, metadata.metadata)
    return metadata


def check_format(key: str, pairs: Mapping[bytes, bytes]) -> None:
    """Raise `Damaged` for an object of a format that this version of Stampede cannot read."""
    number = pairs.get(_FORMAT.encode(), b"")
    if not number.isdigit():
        raise Damaged(f"{key}: the footer does not say of which format it is")
    if int(number) > FORMAT:
        raise Damaged(
            f"{key} has format {int(number)}, and this version of Stampede reads up to format "
            f"{FORMAT}: a later version wrote it"
        )


def end_of_footer(key: str, tail: bytes) -> bytes | None:
    """A footer from its pair on, out of its last bytes. Raises `Damaged`, which names `key`.

    None if `tail` does not reach to the pair.
    """
    pair = tail.rfind(_PAIR)
    if pair < 0:
        return None
    if tail[pair + len(_PAIR) + 8 : pair + _SIZE] != _digits(tail, pair)[8:]:
        raise Damaged(f"{key}: the footer does not have its checksum: it is damaged")
    return tail[pair:]


def start_of_pairs(footer: bytes) -> int | None:
    """Where the list of a footer's pairs begins; None if it does not begin with the checksum.

    The footer has at most `MOST_PAIRS`.
    """
    pair = footer.rfind(_PAIR)
    return pair - 2 if pair >= 2 else None


def new_file(sink: Any, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:
    """A writer of Parquet whose pages have CRCs; `options` as those of `pq.ParquetWriter`."""
    return pq.ParquetWriter(sink, schema, write_page_checksum=True, **options)


def write(rows: pa.Table, metadata: dict[str, str] | None = None, **options: Any) -> pa.Buffer:
    """`rows` as a Parquet file with checksums; `options` as those of `new_file`."""
    sink = pa.BufferOutputStream()
    with new_file(sink, rows.schema, **options) as file:
        file.write_table(rows)
        file.add_key_value_metadata(PLACEHOLDER | (metadata or {}))
    return seal(sink.getvalue())


def write_footers(schema: pa.Schema, footers: Sequence[FileMetaData] | None = None) -> memoryview:
    """A file that has the row groups of other files in its footer, and no pages."""
    sink = BytesIO()
    pq.write_metadata(schema, sink, metadata_collector=footers)
    return sink.getbuffer()


def metadata_of(footer: bytes) -> FileMetaData:
    """A footer parsed, not verified. Raises `pa.ArrowException` or `OSError`."""
    end = len(footer).to_bytes(4, "little") + b"PAR1"
    return pq.read_metadata(pa.BufferReader(b"".join((footer, end))))


def pairs_of(file: IO[bytes]) -> dict[bytes, bytes]:
    """The metadata of a file that is a response of `read`, which has no checksum of its footer.

    Raises one of `PARQUET_ERRORS`.
    """
    return pq.read_metadata(file).metadata or {}


def open_verified(
    source: Any, metadata: FileMetaData, *, pre_buffer: bool = False, **options: Any
) -> ParquetFile:
    """A file whose footer the caller has verified; its pages are verified when they are read.

    `options` are those of `pq.ParquetFile`. With `pre_buffer` Arrow's threads read `source`.
    """
    return pq.ParquetFile(
        source,
        metadata=metadata,
        page_checksum_verification=True,
        pre_buffer=pre_buffer,
        **options,
    )


def open_file(key: str, data: bytes | memoryview | pa.Buffer, **options: Any) -> ParquetFile:
    """A whole Parquet file, the footer checked; pages are checked when they are read.

    `options` are those of `pq.ParquetFile`.

    Raises `Damaged`, which names `key`.
    """
    buffer = pa.py_buffer(data)
    view = memoryview(buffer)
    size = int.from_bytes(view[-8:-4], "little")
    if len(view) < MIN_BYTES or bytes(view[-4:]) != b"PAR1" or size + 8 > len(view):
        raise Damaged(f"{key} is not a Parquet file: it is cut short, or never was one")
    metadata = parse_verified(key, bytes(view[-8 - size : -8]))
    try:
        return open_verified(pa.BufferReader(buffer), metadata, **options)
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key} is not a Parquet file: {error}") from None


def read_file(key: str, file: ParquetFile, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a file from `open_file`, with all its columns or these.

    Raises `Damaged`, which names `key`, also if it lacks any of `columns`.
    """
    try:
        # Arrow's threads abort a process that exits while they start: 9 of 80 runs of
        # `stampede deadletters list`, and none of 80 without threads.
        rows = file.read(columns=columns, use_threads=False)
        return rows if columns is None else rows.select(columns)
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key} is damaged: {error}") from None


def _digits(footer: bytes | bytearray, pair: int) -> bytes:
    """The checksums of a footer whose pair begins at byte `pair`."""
    before, after = isal_zlib.crc32(footer[:pair]), isal_zlib.crc32(footer[pair + _SIZE :])
    return f"{before:08x}{after:08x}".encode()
