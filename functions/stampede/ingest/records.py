"""Splits Avro containers into alerts: one record, one alert.

The length of a block is a claim, and the sync marker behind the block is the proof. So no byte of
a block is believed before its marker is seen. A block without its marker is left out, and reading
goes on after the next marker, which is what markers are for. What is left out is a fault.
"""

import io
import itertools
from collections.abc import Iterator
from typing import IO, NamedTuple

import fastavro

from stampede.alerts import container, schemas
from stampede.errors import StampedeError, Undecodable
from stampede.ingest.stream import Inflated, Part, Stream, fault_of
from stampede.runtime.decompression import Bytes

MAGIC = container.MAGIC
SYNC_BYTES = 16
VARINT_BYTES = 10  # the longest that 64 bits take
CHUNK = 1 << 18  # bytes of a block in which records are looked for; more if one is longer
LONGEST_BLOCK = 1 << 28  # bytes; Avro's writers begin another block after 16 KB to 2 MB
MOST_UNPROVEN = 10  # long blocks without a marker: each is written to a file before that is seen
MOST_EMPTY = 1000  # blocks without a record in a row
PADDING = bytes(16)


class FileAlert(NamedTuple):
    """The bytes of one alert as its survey sends them, or of what should have been alerts.

    Attributes
    ----------
    name
        Where it is: the file, the members of archives, the record.
    fault
        Why these bytes cannot be an alert, and where; None for all that a function can judge.
    """

    name: str
    data: bytes
    fault: str | None = None


def split(name: str, stream: Stream, limit: int) -> Iterator[FileAlert]:
    """The alerts of a container.

    A container of one record is one alert, unchanged. So is one with nothing whole in it: the
    function that receives it says what is wrong.

    Parameters
    ----------
    stream
        It begins with the container's magic bytes.
    limit
        Most bytes of a record, and of the bytes of a fault.
    """
    whole = stream.peek(limit + 1)
    if len(whole) <= limit and _is_of_one(whole):
        stream.skip(len(whole))
        yield FileAlert(name, whole, stream.fault)
        return
    found = _Container(name, stream, limit).alerts()
    first = list(itertools.islice(found, 2))
    if len(whole) <= limit and len(first) == 1 and first[0].fault:
        yield FileAlert(name, whole, stream.fault)
        return
    yield from first
    yield from found


def _is_of_one(data: bytes) -> bool:
    """Whether a whole container has one block, of one record."""
    try:
        begin = container.read_header(data).length
        count, at = container.read_varint(data, begin + SYNC_BYTES)
        size, at = container.read_varint(data, at)
    except StampedeError:
        return False
    end = at + size
    return count == 1 and size >= 0 and data[end:] == data[begin : begin + SYNC_BYTES]


class _Container:
    """Reads one container of many records."""

    def __init__(self, name: str, stream: Stream, limit: int) -> None:
        self._name, self._stream, self._limit = name, stream, limit
        self._number = 0  # of the next record
        self._unproven = 0  # long blocks without a marker so far

    def alerts(self) -> Iterator[FileAlert]:
        """The alerts of the container, and of containers that follow it in the same file."""
        told = False
        while not self._stream.at_end():
            for alert in self._container():
                told = alert.fault is not None
                yield alert
        if self._stream.fault and not told:
            yield self._fault(b"", self._stream.position, self._stream.fault)

    def _container(self) -> Iterator[FileAlert]:
        try:
            header = self._header()
            splitter = _Splitter(header.schema, self._limit)
        except StampedeError as error:
            begin = self._stream.position
            yield self._fault(self._stream.read(self._limit), begin, error.message)
            self._skip_all()
            return
        self._stream.skip(header.length)
        sync = self._stream.read(SYNC_BYTES)
        empty = 0
        while not self._stream.at_end() and self._stream.peek(len(MAGIC)) != MAGIC:
            begin, empty = self._stream.position, empty + 1
            for alert in self._block(header.codec, splitter, sync):
                empty = 0
                yield alert
            if empty > MOST_EMPTY:
                why = f"more than {MOST_EMPTY:,} blocks in a row have no record"
                yield self._fault(self._stream.read(self._limit), begin, why)
                self._skip_all()

    def _skip_all(self) -> None:
        while self._stream.read(CHUNK):
            pass

    def _header(self) -> container.Header:
        size = 1 << 16
        while True:
            data = self._stream.peek(size)
            try:
                return container.read_header(data)
            except Undecodable:
                if len(data) < size or size > self._limit:
                    raise
                size *= 4

    def _block(self, codec: str, splitter: "_Splitter", sync: bytes) -> Iterator[FileAlert]:
        """The alerts of the next block; a fault if it does not end in its marker."""
        begin = self._stream.position
        try:
            head = self._stream.peek(2 * VARINT_BYTES)
            count, at = container.read_varint(head, 0)
            size, at = container.read_varint(head, at)
            if count < 0 or size < 0:
                raise Undecodable("its length is damaged")
        except Undecodable:
            yield self._until_sync(begin, sync, "a block's length is damaged or cut off")
            return
        block = self._proven(at + size, sync)
        if isinstance(block, str):
            yield self._until_sync(begin, sync, block)
            return
        with block:
            yield from self._records(begin, count, _Block(block, at, size, codec), splitter)

    def _proven(self, size: int, sync: bytes) -> IO[bytes] | str:
        """The next `size` bytes and their marker; if it is not there, why, and nothing is read."""
        if size > LONGEST_BLOCK:
            return f"a block claims {size:,} bytes, {LONGEST_BLOCK:,} can be read"
        if size > self._limit and self._unproven >= MOST_UNPROVEN:
            return f"a long block comes after {self._unproven} that do not end in their sync marker"
        no_marker = "a block does not end in its sync marker"
        if size <= self._limit:
            ahead = self._stream.peek(size + SYNC_BYTES)
            if len(ahead) < size + SYNC_BYTES or not ahead.endswith(sync):
                return no_marker
            self._stream.skip(len(ahead))
            return io.BytesIO(ahead)
        copy = self._stream.copy(size + SYNC_BYTES)
        copy.seek(size)
        if copy.read() == sync:
            return copy
        self._unproven += 1
        self._stream.give_back(copy)
        return no_marker

    def _records(
        self, begin: int, count: int, block: "_Block", splitter: "_Splitter"
    ) -> Iterator[FileAlert]:
        """The alerts of a block that ends in its marker."""
        if why := block.damage():
            yield self._fault(block.packed().read(self._limit), begin, why)
            return
        records = block.records()
        for number in range(count):
            record = splitter.next(records)
            if isinstance(record, str):
                where = f"record {number + 1} of {count} in this block is not whole: "
                yield self._fault(records.read(self._limit), begin, where + record)
                return
            yield FileAlert(f"{self._name}[{self._number}]", record)
            self._number += 1
        if not records.at_end():
            why = "bytes are left over after its last record"
            yield self._fault(records.read(self._limit), begin, why)

    def _until_sync(self, begin: int, sync: bytes, why: str) -> FileAlert:
        """A fault of the bytes up to the next sync marker, or to the end."""
        data = self._stream.read(1)
        while True:
            ahead = self._stream.peek(CHUNK)
            found = ahead.find(sync)
            end = found + SYNC_BYTES if found >= 0 else max(len(ahead) - SYNC_BYTES + 1, 0)
            if found < 0 and len(ahead) < CHUNK:
                end = len(ahead)
            piece = self._stream.read(end)
            data += piece[: self._limit - len(data)]
            if found >= 0 or not piece:
                break
        return self._fault(data, begin, why if found >= 0 else f"{why}; {self._end(begin)}")

    def _end(self, begin: int) -> str:
        return self._stream.fault or (
            f"the container is cut off within a block, after {self._stream.position:,} bytes"
        )

    def _fault(self, data: bytes, begin: int, why: str) -> FileAlert:
        name = f"{self._name}[{self._number}…]"
        return FileAlert(name, data, f"from byte {begin:,} of {self._name} on: {why}")


class _Block:
    """The bytes of a block in a file, which can be read more than once."""

    def __init__(self, file: IO[bytes], start: int, size: int, codec: str) -> None:
        self._file, self._start, self._size, self._codec = file, start, size, codec

    def packed(self) -> Stream:
        """The bytes as they are in the container."""
        self._file.seek(self._start)
        return Stream(Part(Stream(self._file), self._size))

    def records(self) -> Stream:
        """The bytes of its records."""
        if self._codec == "null":
            return self.packed()
        if self._codec == "deflate":
            return Stream(Inflated(self.packed()))
        return Stream(io.BytesIO(self._unpacked()))

    def damage(self) -> str | None:
        """Why the whole block cannot be decompressed; None if it can."""
        if self._codec == "null":
            return None
        if self._codec == "deflate":
            return fault_of(Inflated(self.packed()))
        try:
            self._unpacked()
        except StampedeError as error:
            return error.message
        return None

    def _unpacked(self) -> Bytes:
        return container.decompress(self.packed().read(LONGEST_BLOCK), self._codec, LONGEST_BLOCK)


class _Splitter:
    """Takes record after record from the bytes of a block."""

    def __init__(self, schema: schemas.Schema, limit: int) -> None:
        # In a record without fields of its own, fastavro skips the alert instead of building it:
        # that takes no memory, whatever the bytes claim. `simplify` refuses what is unbounded.
        field = {"name": "alert", "type": schemas.simplify(schema)}
        writer = {"type": "record", "name": "stampede_one_alert", "fields": [field]}
        try:
            self._writer = fastavro.parse_schema(writer)
        except Exception as error:  # fastavro raises many types for bad schemas
            raise Undecodable(f"the container's schema cannot be read: {error}") from error
        self._reader = {"type": "record", "name": "stampede_one_alert", "fields": []}
        self._head = container.make_header(schema)
        self._limit = limit

    def next(self, stream: Stream) -> bytes | str:
        """The next record as a container of its own, or why there is none; then it stays unread."""
        size = CHUNK
        while True:
            data = stream.peek(size)
            length = self._length(data)
            if isinstance(length, int):
                stream.skip(length)
                return b"".join((self._head, *container.make_blocks([[data[:length]]])))
            if len(data) < size:
                return length
            if size > self._limit:
                return f"it has more than {self._limit:,} bytes"
            size *= 4

    def _length(self, data: bytes) -> int | str:
        """The length of the record that `data` begin with, or why there is none."""
        padded = io.BytesIO(data + PADDING)
        try:
            fastavro.schemaless_reader(padded, self._writer, self._reader)  # noqa: TID251
        except Exception as error:  # fastavro raises many types for bad bytes
            return f"the bytes do not fit the schema: {str(error) or type(error).__name__}"
        # A skip does not notice the end of the bytes: it has run into the padding.
        return padded.tell() if padded.tell() <= len(data) else "the record is cut off"
