"""A flipped bit is found wherever it is; a format says which version can read an object."""

import random
import re
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from io import BytesIO

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.alerts.columns import CUTOUT, CUTOUT_LOCATION
from stampede.alerts.schema_groups import RawAlerts
from stampede.deadletters.dead_letter import read_rows, write_letters
from stampede.errors import Damaged
from stampede.store.integrity.dead_letter_offsets import read_coverage
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs import pack as packs
from stampede.store.packs.raw_alerts import write_raw
from stampede.store.parquet.checksums import open_file
from stampede.store.runs.run_name import digest
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.runs.writer import GROUP_ROWS
from stampede.store.tables.table import Table
from tests.support.events.dead_letters import event
from tests.support.store.made_run import of_format
from tests.support.store.rows import cutout, many, object_ids, table

COVERAGE = Coverage.of({("alerts", 0): range(10)})
NOW = datetime(2026, 11, 20, tzinfo=UTC)
FLIPS = 300


def places(count: int) -> pa.Table:
    """Locations of images, sorted."""
    ids = pa.array(range(count), pa.int64())
    columns = {name: pa.nulls(count) for name in CUTOUT_LOCATION.names} | {
        "alert_id": ids,
        "survey": pa.repeat("lsst", count),
        "kind": pa.repeat("science", count),
        "object_id": ids.cast(pa.string()),
        "mjd": pa.repeat(61000.0, count),
        "pack": pa.repeat("packs/61000/x.parquet", count),
        "page_offset": ids,
        "crc32": pa.repeat(5, count),
    }
    return pa.table(columns).cast(CUTOUT_LOCATION)


def read_run(key: str, data: bytes) -> object:
    """All that a reader gets of a run: each row group, found by the index, and the coverage."""
    objects = MemoryObjects()
    objects.put(key, data)
    one = Table(objects, DETECTIONS, threads=1)
    rows = one.lookup(object_ids(many(2 * GROUP_ROWS)))
    if reasons := one.quarantined():
        raise Damaged(str(reasons))
    [run] = one.runs()
    return rows.to_pydict(), run.coverage, run.rows, run.first, run.last, run.inputs


def read_letters(key: str, data: bytes) -> object:
    objects = MemoryObjects()
    objects.put(key, data)
    return read_rows(objects, objects.head(key)).to_pydict(), read_coverage(
        objects, objects.head(key)
    )


def read_pack_without_name(key: str, data: bytes) -> object:
    """The digest in the name is not checked, so that the checksums inside are."""
    rows, coverage = packs.read_rows(data)
    return rows.to_pydict(), coverage


def read_places_without_name(key: str, data: bytes) -> object:
    """The same of what reads the pages of images itself. The name is that of the damaged bytes."""
    pack, coverage = packs.read_pack(data)
    return pack.locations.drop_columns(["pack"]).to_pydict(), coverage


def written() -> Iterator[object]:
    objects = MemoryObjects()
    run = Table(objects, DETECTIONS, threads=1).append(many(2 * GROUP_ROWS), COVERAGE)
    yield pytest.param(run, objects.get(run), read_run, id="run", marks=pytest.mark.long)
    rows = [cutout(n, "science", bytes(range(n))) for n in range(60)]
    pack = packs.write_pack(table(rows, CUTOUT), COVERAGE)
    data = pack.data.to_pybytes()
    yield pytest.param(pack.key, data, read_pack_without_name, id="pack")
    yield pytest.param(pack.key, data, read_places_without_name, id="places in a pack")
    key, letters = write_letters("cutouts", [event(n) for n in range(30)])
    yield pytest.param(key, letters, read_letters, id="dead letters")


@pytest.mark.parametrize(("key", "data", "read"), list(written()))
def test_a_flipped_bit_is_found_or_harmless(
    key: str, data: bytes, read: Callable[[str, bytes], object]
) -> None:
    whole, generator, named = read(key, data), random.Random(7), 0
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for number in range(FLIPS):
        damaged = bytearray(data)
        # As many in the footer as before it, where most bytes are.
        place = generator.randrange(*((footer, len(data)) if number % 2 else (0, footer)))
        damaged[place] ^= 1 << generator.randrange(8)
        try:
            # A bit in a page's header that no reader looks at may go unnoticed here.
            assert read(key, bytes(damaged)) == whole, place
        except Damaged as error:
            named += key in error.message or "the pack" in error.message
    assert named > 0.96 * FLIPS  # each column of this small file has a header, in part not read


def test_every_bit_of_a_footer_counts() -> None:
    rows = [cutout(n, "science", b"x") for n in range(3)]
    data = packs.write_pack(table(rows, CUTOUT), COVERAGE).data.to_pybytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for place in range(start, len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            with pytest.raises(Damaged):
                packs.read_rows(bytes(damaged))


def test_other_readers_find_a_flipped_bit_too() -> None:
    rows = pa.table({"candid": range(1000)})
    key, data, _ = write_raw(RawAlerts("ztf", 61000, rows))
    file = pq.ParquetFile(BytesIO(data), page_checksum_verification=True)
    assert file.read().equals(rows)
    assert polars.read_parquet(BytesIO(bytes(data))).height == 1000
    damaged = bytearray(data)
    damaged[200] ^= 4
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(BytesIO(damaged), page_checksum_verification=True).read()
    assert key.endswith(f"{digest(data)}.parquet")


def test_the_checksum_of_an_image_is_in_its_location() -> None:
    rows = [cutout(1, "science", b"image"), cutout(1, "template", None)]
    pack = packs.write_pack(table(rows, CUTOUT), COVERAGE)
    assert pack.locations["crc32"].to_pylist() == [zlib.crc32(b"image"), None]


def test_a_pack_is_held_to_the_digest_in_its_name() -> None:
    rows = [cutout(1, "science", b"image")]
    pack, other = (packs.write_pack(table(rows, CUTOUT), held) for held in (COVERAGE, Coverage()))
    assert packs.read_pack(pack.data, key=pack.key)[0].key == pack.key
    with pytest.raises(Damaged, match=f"{pack.key}.*digest"):
        packs.read_pack(other.data, key=pack.key)


def test_objects_of_a_later_format_are_refused_by_that_name() -> None:
    readers = [*written()]
    key, data, _ = write_raw(RawAlerts("ztf", 61000, pa.table({"candid": range(9)})))
    assert pq.read_metadata(BytesIO(data)).metadata[b"stampede.format"] == b"1"
    assert "format 4" in refusal(lambda: open_file(key, of_format(data, "4")))
    for parameter in readers:
        key, data, read = parameter.values
        assert pq.read_metadata(BytesIO(data)).metadata[b"stampede.format"] == b"1"
        assert of_format(data, "1") == bytes(data)
        for number, why in {"4": "has format 4.* up to format 3", "x": "not say"}.items():
            other = of_format(data, number)
            if key.startswith("deadletters/"):  # a reader holds them to their name
                key = f"{key.rpartition('/')[0]}/{digest(other)}.parquet"
            assert re.search(why, refusal(partial(read, key, other)))


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(Damaged) as refused:
        read()
    return refused.value.message


def test_duckdb_reads_what_has_checksums(tmp_path) -> None:
    objects = MemoryObjects()
    key = Table(objects, CUTOUTS).append(places(3), COVERAGE)
    path = tmp_path / "run.parquet"
    path.write_bytes(objects.get(key))
    assert duckdb.sql(f"SELECT sum(crc32) FROM '{path}'").fetchall() == [(15,)]
