"""Digests of the rows of packs: two packs that have a digest in common have that row in common.

They are compared within a process, and stored nowhere.
"""

from collections.abc import Iterator
from hashlib import sha256

import pyarrow as pa

from stampede.store.packs.pack import Content, read_rows
from stampede.store.packs.packets import row_pages
from stampede.store.packs.stored_images import stored_frames
from stampede.store.runs.schema import PACKET_PACKS, PackSpec


def digests_of(rows: pa.Table) -> set[bytes]:
    """A digest of each row, of all its columns."""
    found = set()
    for batch in rows.to_batches():
        whole = [number for number, field in enumerate(batch.schema) if _holds_bytes(field.type)]
        small = [column for number, column in enumerate(batch.columns) if number not in whole]
        files = [batch.column(number) for number in whole]
        for row, values in enumerate(_rows(small, batch.num_rows)):
            state = sha256(repr(values).encode())
            for column in files:
                content = _content(column[row])
                state.update(b"null " if content is None else b"%d " % content.size)
                state.update(content or b"")
            found.add(state.digest())
    return found


def digests_of_pack(data: bytes, key: str, spec: PackSpec) -> set[bytes]:
    """A digest of each row of a pack, of all its columns. Raises `Damaged`."""
    if spec is PACKET_PACKS:  # unpacked, a merged pack may take much memory
        return set().union(*map(digests_of, row_pages(data, key)))
    return digests_of(read_rows(data, key)[0])


def digests_of_frames(content: Content) -> set[bytes]:
    """A digest of each row of a pack of cutouts, of its columns and the frames that hold its file.

    Takes a quarter of the time of `digests_of_pack`. Equal files may be in frames that differ, if
    two versions of a library compressed them.
    """
    rows = content.rows
    small = [rows[name] for name in rows.schema.names if name != "tail"]
    frames = stored_frames(rows, content.file, memoryview(content.pack.data).cast("B"))
    return {
        sha256(repr((values, frame)).encode()).digest()
        for values, frame in zip(_rows(small, rows.num_rows), frames, strict=True)
    }


def _rows(columns: list[pa.Array | pa.ChunkedArray], rows: int) -> Iterator[tuple[object, ...]]:
    """The values of each row."""
    if not columns:
        return iter([()] * rows)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _holds_bytes(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_binary(kind) or kind == pa.binary_view())


def _content(value: pa.Scalar) -> pa.Buffer | None:
    if not value.is_valid:
        return None
    return (value.value if isinstance(value, pa.DictionaryScalar) else value).as_buffer()
