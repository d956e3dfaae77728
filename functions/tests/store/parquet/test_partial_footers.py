from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.offsets.coverage import Coverage
from stampede.store.parquet.checksums import MOST_PAIRS, PLACEHOLDER, metadata_of
from stampede.store.parquet.partial_footers import Descriptions, run_metadata
from stampede.store.runs import writer as run_writer
from stampede.store.runs.footer import parse_footer, parse_index
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, THUMBNAILS, TableSpec
from stampede.store.runs.writer import GROUP_ROWS, RunWriter
from stampede.store.tables.table import Table
from tests.support.store.rows import detection, many, table

SPECS = (CUTOUTS, DETECTIONS, THUMBNAILS)


def file_of(spec: TableSpec, groups: int, coverage: Coverage | None = None) -> bytes:
    """A run of `groups` row groups, the last of them short."""
    rows = max(0, groups * GROUP_ROWS - 7)
    columns = [
        pa.array(range(rows)).cast(field.type)
        if not pa.types.is_boolean(field.type)
        else pa.repeat(True, rows)
        for field in spec.schema
    ]
    writer = RunWriter(spec)
    writer.add(pa.table(columns, spec.schema.remove_metadata()))
    return writer.close(0, ("a", "b"), coverage or Coverage()).to_pybytes()


def footer_of(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize(
    "groups", [0, 1, 14, 15, 16, 17, pytest.param(130, marks=pytest.mark.long)]
)
def test_each_row_group_is_read_by_its_own_description(spec: TableSpec, groups: int) -> None:
    data = file_of(spec, groups)
    footer, complete = footer_of(data), pq.ParquetFile(pa.BufferReader(data))
    described = Descriptions(footer, complete.metadata)
    for group in range(groups):
        metadata, number = described.of(group)
        assert (metadata.num_row_groups, number) == (1, 0)
        file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata)
        assert file.read_row_group(number).equals(complete.read_row_group(group))
    if groups == 130:
        assert described.nbytes < len(footer) / 3


def test_a_footer_of_another_layout_is_kept_parsed() -> None:
    data = file_of(DETECTIONS, 3)
    complete = pq.read_metadata(pa.BufferReader(data))
    for other in (b"", footer_of(data).replace(b"object_id", b"object-id")):
        described = Descriptions(other, complete)
        assert described.of(2) == (complete, 2)
        assert described.nbytes > len(footer_of(data))


def test_run_metadata_is_read_from_the_end_of_the_footer() -> None:
    coverage = Coverage.of({("\x18\x0estampede.level", 3): [1, 2, 5]})
    footer = footer_of(file_of(DETECTIONS, 40, coverage))
    found = run_metadata("a run", footer[-2000:], DETECTIONS.schema)
    assert found is not None
    assert found.metadata == metadata_of(footer).metadata
    assert found.num_row_groups == 0
    assert run_metadata("a run", footer[-100:], DETECTIONS.schema) is None


def test_a_footer_has_as_many_pairs_as_readers_count_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_writer, "SMALL_GROUPS", 0)
    writer = RunWriter(DETECTIONS)
    writer.add(many(10))
    data = writer.close(1, ("a", "b"), Coverage(), "0" * 32, (0, 1)).to_pybytes()
    pairs = metadata_of(footer_of(data)).metadata
    assert len(pairs) == MOST_PAIRS  # it has them all
    found = run_metadata("a run", footer_of(data)[10:], DETECTIONS.schema)
    assert found is not None
    assert found.metadata == pairs
    monkeypatch.setattr(run_writer, "PLACEHOLDER", PLACEHOLDER | {"stampede.more": "1"})
    writer = RunWriter(DETECTIONS)
    writer.add(many(10))
    with pytest.raises(AssertionError, match="short head"):
        writer.close(1, ("a", "b"), Coverage(), "0" * 32, (0, 1))


def test_a_row_group_of_another_section_is_no_place_in_an_index() -> None:
    data = file_of(DETECTIONS, 3)
    footer, key = footer_of(data), RunName(0, "ab" * 16).key("detections")
    info = ObjectInfo(key, len(data), "", datetime.now(UTC))
    index = parse_index(parse_footer(metadata_of(footer), info, DETECTIONS), footer, DETECTIONS)
    later = replace(index, first=16)
    assert later.extent(16) == index.extent(0)
    for group in (15, 19):
        for of in (later.extent, later.rows_of, later.metadata_of, later.ends_of):
            with pytest.raises(IndexError, match=f"row group {group} "):
                of(group)


def test_a_run_with_much_metadata_is_read() -> None:
    objects = MemoryObjects()
    coverage = Coverage.of({("topic", 0): range(0, 20_000, 2)})
    rows = table(detection(f"{n:06}", n) for n in range(100))
    Table(objects, DETECTIONS, threads=1).append(rows, coverage)
    one = Table(objects, DETECTIONS, threads=1)
    assert one.coverage() == coverage
    assert one.lookup(["000042"]).num_rows == 1


@pytest.mark.long
def test_an_index_takes_far_less_memory_than_a_parsed_footer() -> None:
    data = file_of(DETECTIONS, 200)
    footer, key = footer_of(data), RunName(0, "ab" * 16).key("detections")
    info = ObjectInfo(key, len(data), "", datetime.now(UTC))
    run = parse_footer(metadata_of(footer), info, DETECTIONS)
    assert parse_index(run, footer, DETECTIONS).nbytes < 14 * len(footer) / 25
