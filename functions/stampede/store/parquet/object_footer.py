"""The end of a Parquet object: its footer, not verified yet."""

from stampede.errors import Damaged
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.parquet.checksums import MIN_BYTES
from stampede.store.parquet.range_file import ChangedObject

TAIL = 16 << 10
"""Bytes at the end of an object that are read first: more than a footer of one row group."""


def tail_of(objects: Objects, info: ObjectInfo, length: int) -> tuple[bytes, int]:
    """The last `length` bytes without the final 8 of Parquet, and the length of the footer.

    Raises `NotFound`, `StoreDown`, `Damaged`.
    """
    if info.size < MIN_BYTES:
        raise Damaged(f"{info.key} has {info.size} bytes, too few for Parquet")
    tail = objects.get(info.key, info.size - length, length)
    if len(tail) != length:
        raise ChangedObject(f"{info.key} is shorter than it was listed")
    footer_size = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != b"PAR1" or footer_size + 8 > info.size:
        raise Damaged(f"{info.key} is cut short or is not Parquet")
    return tail[:-8], footer_size


def footer_bytes(objects: Objects, info: ObjectInfo, first: int = TAIL) -> bytes:
    """A footer, not verified: by one GET of `first` bytes, or by two if it is longer.

    Raises `NotFound`, `StoreDown`, `Damaged`.
    """
    tail, size = tail_of(objects, info, min(info.size, first))
    if size > len(tail):
        tail, _ = tail_of(objects, info, size + 8)
    return tail[len(tail) - size :]
