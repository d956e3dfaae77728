"""What the objects of a site hold, read without the code under test."""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stampede.store.parquet.thrift import read_struct

ALERTS = 12  # distinct alert ids; an offset holds the alert of its number modulo this
Version = tuple[str, int]  # key of the pack and offset in it: the greater wins


class RunContent(NamedTuple):
    """One part of a run."""

    run: str
    level: int
    parts: int
    inputs: frozenset[str]
    offsets: frozenset[int]
    rows: dict[int, Version]  # by alert id


class View(NamedTuple):
    """A table as a perfect reader would see it: its live runs."""

    rows: dict[int, Version]
    offsets: set[int]
    runs: set[str]
    half_written: set[str]


def alert_of(offset: int) -> int:
    """The id of the alert at an offset."""
    return offset % ALERTS


def offsets_in(coverage: str | bytes) -> frozenset[int]:
    """The offsets in a coverage's JSON, of all partitions together."""
    return frozenset(
        offset
        for intervals in json.loads(coverage).values()
        for start, end in intervals
        for offset in range(start, end)
    )


def offsets_of(data: bytes, coverage: bytes) -> frozenset[int]:
    """The offsets of a part: those in its footer, or in the block before it."""
    value = json.loads(coverage)
    if isinstance(value, dict):
        return offsets_in(coverage)
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    block = pa.BufferReader(data[end - value[0] : end])
    rows = json.loads(pa.CompressedInputStream(block, "zstd").read())
    return frozenset(
        offset
        for of_topic in rows.values()
        for _, start, end in of_topic
        for offset in range(start, end)
    )


@lru_cache(maxsize=20_000)
def read_run(key: str, data: bytes) -> RunContent:
    """The content of a part of a run of `cutouts`."""
    file = pq.ParquetFile(pa.BufferReader(data))
    pairs = file.metadata.metadata
    name = key.rpartition("/")[2].removesuffix(".parquet")
    level, digest, *part = name.split("-")
    columns = file.read(["alert_id", "pack", "page_offset"], use_threads=False).to_pydict()
    locations = zip(columns["pack"], columns["page_offset"], strict=True)
    return RunContent(
        f"{level}-{digest}",
        int(level),
        int(part[0].partition("of")[2]) if part else 1,
        frozenset(json.loads(pairs[b"stampede.inputs"])),
        offsets_of(data, pairs[b"stampede.coverage"]),
        dict(zip(columns["alert_id"], locations, strict=True)),
    )


@lru_cache(maxsize=20_000)
def read_images(data: bytes) -> frozenset[tuple[int, bytes]]:
    """Alert id and image of each row of a pack."""
    file = pq.ParquetFile(pa.BufferReader(data))
    columns = file.read(["alert_id", "fits", "tail"], use_threads=False).to_pydict()
    files = map(bytes.__add__, columns["fits"], columns["tail"])
    return frozenset(zip(columns["alert_id"], files, strict=True))


@lru_cache(maxsize=20_000)
def read_places(key: str, data: bytes) -> dict[Version, bytes]:
    """The image at each place of a pack: pages are found by their headers, in the order of rows."""
    file = pq.ParquetFile(pa.BufferReader(data))
    images = file.read(["fits", "tail"], use_threads=False).to_pydict()
    chunk = file.metadata.row_group(0).column(file.schema.names.index("fits"))
    at, found = chunk.data_page_offset, {}
    for image in map(bytes.__add__, images["fits"], images["tail"]):  # an alert here has one
        header, body = read_struct(memoryview(data), at)
        found[key, body] = image
        at = body + header[3]
    return found


@lru_cache(maxsize=20_000)
def read_letters(data: bytes) -> frozenset[int]:
    """The offsets of the dead letters in an object."""
    file = pq.ParquetFile(pa.BufferReader(data))
    return frozenset(file.read(["offset"], use_threads=False)["offset"].to_pylist())


def view(parts: Iterable[RunContent]) -> View:
    """The live runs among `parts`."""
    runs: dict[str, list[RunContent]] = {}
    for part in parts:
        runs.setdefault(part.run, []).append(part)
    complete = {name: run for name, run in runs.items() if len(run) == run[0].parts}
    superseded = {name for run in complete.values() for name in run[0].inputs}
    found = View({}, set(), set(), runs.keys() - complete.keys())
    for name, run in complete.items():
        if name not in superseded:
            found.runs.add(name)
            found.offsets.update(*(part.offsets for part in run))
            for part in run:
                for alert, version in part.rows.items():
                    if version > found.rows.get(alert, ("", -1)):
                        found.rows[alert] = version
    return found
