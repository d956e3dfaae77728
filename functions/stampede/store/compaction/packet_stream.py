"""A pack of packets, read from its beginning to its end in pieces: a merge reads many at a time."""

from collections.abc import Iterator

from stampede.errors import Damaged
from stampede.store.integrity.verified_objects import footer_of
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.pack import coverage_in
from stampede.store.packs.packets import SMALL, small_columns
from stampede.store.parquet import pages
from stampede.store.parquet.checksums import PARQUET_ERRORS, open_verified, read_file
from stampede.store.parquet.range_file import ObjectFile
from stampede.store.runs.schema import PACKET_PACKS

PIECE = 1 << 20
"""Bytes of one GET, if a page is not larger."""


class DamagedInput(Damaged):
    """A pack to be merged cannot be read: `key` is its key."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key} is damaged: {why}")
        self.key = key


class PacketStream:
    """A pack whose footer and small columns were read.

    Attributes
    ----------
    key
        That of the pack.
    rows
        The columns `packets.SMALL`.
    coverage
        That in the footer.
    unpacked
        Bytes of the column of packets, decompressed.

    Raises `NotFound`, `Damaged`, `StoreDown`; its iterator `DamagedInput` in place of `Damaged`.
    """

    def __init__(self, objects: Objects, info: ObjectInfo) -> None:
        self._objects, self.key = objects, info.key
        metadata = footer_of(objects, info)
        self.coverage = coverage_in(info.key, metadata)
        names = [name for name in SMALL if name in metadata.schema.names]
        file = open_verified(ObjectFile(objects, info), metadata, pre_buffer=True)
        try:
            self.rows = small_columns(read_file(info.key, file, names))
            number = metadata.schema.names.index(PACKET_PACKS.image)
            chunks = [
                metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)
            ]
        except PARQUET_ERRORS as error:
            raise Damaged(f"{info.key} does not have the rows of packets: {error}") from None
        self.unpacked = sum(chunk.total_uncompressed_size for chunk in chunks)
        self._ranges = [(chunk.data_page_offset, chunk.total_compressed_size) for chunk in chunks]

    def __iter__(self) -> Iterator[memoryview]:
        """The packets, in the order of the rows; each page is verified when it is read."""
        try:
            for start, size in self._ranges:
                for page in self._pages(start, start + size):
                    yield from pages.values(page)
        except Damaged as error:
            raise DamagedInput(self.key, error.message) from None

    def _pages(self, at: int, end: int) -> Iterator[memoryview]:
        """The pages between two places of the file."""
        held = memoryview(b"")
        while at < end:
            held = self._filled(held, at, end, pages.HEADER_BYTES)
            length = pages.length_of(held)
            held = self._filled(held, at, end, length)
            if len(held) < length:
                raise Damaged("a page is cut short")
            yield held[:length]
            held, at = held[length:], at + length

    def _filled(self, held: memoryview, at: int, end: int, least: int) -> memoryview:
        """What is held of the file from `at` on, at least `least` bytes, or up to `end`."""
        lacking = min(least, end - at) - len(held)
        if lacking <= 0:
            return held
        start = at + len(held)
        more = self._objects.get(self.key, start, min(max(lacking, PIECE), end - start))
        return memoryview(bytes(held) + more)
