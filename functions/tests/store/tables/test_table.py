"""Tables: a lookup finds what was appended, with few small requests."""

import json
import math
import re
from base64 import b64decode
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts.columns import CUTOUT_LOCATION, DETECTION
from stampede.errors import NotFound, StoreDown
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.bloom_filters import Filter, OneHash
from stampede.store.runs.keys import sortable
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, TABLES
from stampede.store.runs.writer import GROUP_ROWS, RunWriter
from stampede.store.tables.table import Table
from tests.support.store.rows import bits, detection, detections, many, merged, object_ids, table
from tests.support.store.watched_objects import Failing, Watched

COVERAGE = Coverage.of({("alerts", 0): range(10)})


@given(
    st.lists(st.lists(detections, max_size=10), max_size=4),
    st.lists(st.sampled_from(["", "1", "10", "100", "é", "ZTF18abc", "ZTF"])),
)
def test_lookup_gives_what_plain_python_gives(appends: list, values: list) -> None:
    one = Table(MemoryObjects(), DETECTIONS, threads=1)
    for rows in appends:
        one.append(table(rows), COVERAGE)
    wanted = [row for rows in appends for row in rows if row["object_id"] in values]
    assert bits(one.lookup(values)) == bits(merged(wanted, DETECTIONS))
    assert one.lookup(values).schema.equals(DETECTION, check_metadata=True)


def test_integer_keys() -> None:
    one = Table(MemoryObjects(), CUTOUTS)
    row = {f.name: None if f.nullable else 1.0 if f.name == "mjd" else "x" for f in CUTOUT_LOCATION}
    alert_ids = [-(2**63), -1, 0, 5, 2**63 - 1]
    rows = [row | {"alert_id": number} for number in alert_ids]
    one.append(table(rows, CUTOUT_LOCATION), COVERAGE)
    assert one.lookup([5, 2**63 - 1, 7])["alert_id"].to_pylist() == [5, 2**63 - 1]
    assert one.lookup(alert_ids).to_pylist() == rows


def test_an_empty_table() -> None:
    one = Table(MemoryObjects(), DETECTIONS)
    assert one.lookup(["1"]).schema.equals(DETECTION)
    assert one.runs() == []
    assert one.coverage() == Coverage()
    assert set(TABLES) == {"cutouts", "detections"}


def test_an_empty_lookup_reads_nothing() -> None:
    objects = Watched(MemoryObjects())
    one = Table(objects, DETECTIONS)
    one.append(many(10), COVERAGE)
    one.refresh()
    before = len(objects.calls)
    assert one.lookup([]).num_rows == 0
    assert one.lookup(["zzz", ""]).num_rows == 0
    assert len(objects.calls) == before


def test_same_rows_same_run() -> None:
    objects = MemoryObjects()
    one = Table(objects, DETECTIONS)
    rows = many(3000)
    shuffled = rows.take(np.random.default_rng(1).permutation(3000))
    assert one.append(rows, COVERAGE) == one.append(shuffled, COVERAGE)
    assert one.append(rows, Coverage()) != one.append(rows, COVERAGE)
    assert len(list(objects.list("tables/detections/0000-"))) == 2


def test_a_lookup_fetches_one_row_group_of_each_run_and_caches_it() -> None:
    objects = Watched(MemoryObjects())
    one = Table(objects, DETECTIONS, threads=1)
    for version in range(3):
        one.append(many(10 * GROUP_ROWS, 5, version), COVERAGE)
    one.refresh()
    assert objects.count("get") == 3  # one footer each
    size = sum(info.size for info in objects.list("tables/"))
    objects.got = 0
    found = one.lookup(["000700"])
    assert found["flux"].to_pylist() == [2.0] * 5
    assert objects.count("get") == 6
    assert objects.got < size / 8
    assert one.lookup(["000700", "000701"]).num_rows == 10
    assert objects.count("get") == 6


def test_one_request_fetches_adjacent_row_groups() -> None:
    objects = Watched(MemoryObjects())
    one = Table(objects, DETECTIONS, threads=1)
    rows = many(10 * GROUP_ROWS)
    one.append(rows, COVERAGE)
    one.refresh()
    assert one.lookup(object_ids(rows)).equals(rows)
    assert objects.count("get") == 3  # the footer, the section, the rows
    assert one.lookup(object_ids(rows)).equals(rows)
    assert objects.count("get") == 3


def test_one_object_over_many_row_groups() -> None:
    one = Table(MemoryObjects(), DETECTIONS)
    rows = many(6 * GROUP_ROWS, 5 * GROUP_ROWS)
    one.append(rows, COVERAGE)
    assert one.lookup(["000000"]).num_rows == 5 * GROUP_ROWS
    assert one.lookup(["000001"]).num_rows == GROUP_ROWS


def test_a_refresh_reads_only_new_footers() -> None:
    objects = Watched(MemoryObjects())
    one = Table(objects, DETECTIONS)
    for version in range(4):
        one.append(many(10, 1, version), COVERAGE)
    one.refresh()
    assert objects.count("get") == 4
    one.refresh()
    assert objects.count("get") == 4
    one.append(many(10, 1, 9), COVERAGE)
    one.refresh()
    assert objects.count("get") == 5
    assert len(one.runs()) == 5


def test_without_a_cache_everything_is_read_again() -> None:
    objects = Watched(MemoryObjects())
    one = Table(objects, DETECTIONS, cache_bytes=0)
    rows = many(3 * GROUP_ROWS)
    one.append(rows, COVERAGE)
    for _ in range(2):
        before = objects.count("get")
        assert one.lookup(object_ids(rows)).equals(rows)
        assert objects.count("get") > before
    assert one.reader.cache.bytes == 0


def test_cached_rows_need_no_request() -> None:
    objects = Watched(MemoryObjects())
    one = Table(objects, DETECTIONS, threads=1)
    for version in range(2):
        one.append(many(3 * GROUP_ROWS, 5, version), COVERAGE)
    assert one.cached("000700") is None  # nothing listed
    one.refresh()
    found = one.lookup(["000700"])
    requests = len(objects.calls)
    assert one.cached("000700").equals(found)
    assert one.cached("000700x").num_rows == 0  # its row group is cached and does not have it
    assert one.cached("zzz").num_rows == 0
    assert one.cached("000000") is None  # another row group
    assert len(objects.calls) == requests

    expected = [tuple(row.values()) for row in found.to_pylist()]
    assert one.cached_values("000700", 2 * len(expected)) == expected  # merged of two runs
    assert one.cached_values("000700", 2 * len(expected) - 1) is None
    assert one.cached_values("000700x", 100) == []
    assert one.cached_values("000000", 100) is None

    one.append(many(10, 1, 2), COVERAGE)
    one.refresh()
    one.reader.cache = Cache(1 << 20)
    assert one.cached("000001") is None  # no index


def test_cached_values_of_one_run() -> None:
    one = Table(MemoryObjects(), DETECTIONS, threads=1)
    one.append(many(300, 5), COVERAGE)
    one.refresh()
    for key in object_ids(many(300, 5))[::37]:
        expected = [tuple(row.values()) for row in one.lookup([key]).to_pylist()]
        assert expected
        assert one.cached_values(key, 100) == expected


def test_many_keys_far_apart_of_one_row_group() -> None:
    one = Table(MemoryObjects(), DETECTIONS)
    rows = many(GROUP_ROWS, 3)
    one.append(rows, COVERAGE)
    wanted = ["000000", "000100", "000100x", "000300", "\0", "zzz"]
    assert one.lookup(wanted).equals(rows.filter(pc.is_in(rows["object_id"], pa.array(wanted))))


def test_the_cache_holds_what_was_used_last() -> None:
    cache = Cache(10)
    for name in "abc":
        cache.put((name,), name, 3)
    assert cache.get(("a",)) == "a"
    cache.put(("d",), "d", 4)
    assert [cache.get((name,)) for name in "abcd"] == ["a", None, "c", "d"]
    cache.put(("d",), "D", 1)
    assert cache.bytes == 7
    cache.put(("e",), "e", 11)
    assert cache.bytes == 0
    cache.limit = -1
    cache.put(("f",), "f", 1)
    assert (cache.bytes, cache.get(("f",))) == (0, None)


def test_indexes_beyond_their_limit_leave_no_room_for_rows() -> None:
    """Another thread sees them so while an index is put and others are not dropped yet."""
    one = Table(MemoryObjects(), DETECTIONS, cache_bytes=1)
    rows = many(2 * GROUP_ROWS)
    one.append(rows, COVERAGE)
    one.reader.indexes.limit = 1 << 20
    assert one.lookup(object_ids(rows)).num_rows == 2 * GROUP_ROWS
    assert one.reader.indexes.bytes > 1
    assert one.reader.cache.limit == 0


def test_a_lookup_lists_again_when_runs_were_deleted() -> None:
    store = MemoryObjects()
    one = Table(store, DETECTIONS, cache_bytes=0)
    key = one.append(many(10), COVERAGE)
    one.refresh()
    merged_run = write_run(store, many(10), 1, [RunName.parse(key).run])
    store.delete(key)
    assert one.lookup(["000003"]).num_rows == 1
    assert [run.key for run in one.runs()] == [merged_run]


def test_a_lookup_gives_up_when_runs_are_always_deleted() -> None:
    store = MemoryObjects()
    one = Table(Failing(store, NotFound), DETECTIONS)
    one.append(many(10), COVERAGE)
    with pytest.raises(StoreDown, match="faster than they can be listed"):
        one.refresh()


def test_a_refresh_ends_while_another_process_deletes_runs() -> None:
    """At each try the last run is deleted before its footer is read."""
    store = MemoryObjects()
    writer = Table(store, DETECTIONS)
    keys = sorted(writer.append(many(10, version=n), COVERAGE) for n in range(9))
    merged_run = write_run(store, many(10), 1, [RunName.parse(key).run for key in keys])

    def sweep(number: int) -> None:
        if keys and watched.calls[number] == ("get", keys[-1]):
            store.delete(keys.pop())

    watched = Watched(store, sweep)
    one = Table(watched, DETECTIONS, cache_bytes=0, threads=1)
    one.refresh()
    assert [run.key for run in one.runs()] == [merged_run]
    assert watched.count("get") == 10


def write_run(
    store: MemoryObjects, rows: pa.Table, level: int, inputs: list, part: int = 0, parts: int = 1
) -> str:
    writer = RunWriter(DETECTIONS)
    writer.add(rows)
    key = RunName(level, "ab" * 16, part, parts).key("detections")
    store.put(key, writer.close(level, inputs, COVERAGE).to_pybytes())
    return key


def test_inputs_are_left_out_once_all_parts_exist() -> None:
    store = MemoryObjects()
    one = Table(store, DETECTIONS)
    rows = many(10)
    key = one.append(rows, COVERAGE)
    inputs = [RunName.parse(key).run]
    second = write_run(store, rows.slice(5), 1, inputs, 1, 2)
    one.refresh()
    assert [run.key for run in one.runs()] == [key]
    first = write_run(store, rows.slice(0, 5), 1, inputs, 0, 2)
    one.refresh()
    assert [run.key for run in one.runs()] == [first, second]
    assert [run.key for run in one.listed()] == [key, first, second]
    assert one.lookup(object_ids(rows)).equals(rows)


def test_coverage_of_an_incomplete_run_does_not_count() -> None:
    store = MemoryObjects()
    one = Table(store, DETECTIONS)
    write_run(store, many(5), 1, ["0000-" + "cd" * 16], 0, 2)
    one.refresh()
    assert one.coverage() == Coverage()


def test_a_run_without_rows_still_covers() -> None:
    one = Table(MemoryObjects(), DETECTIONS)
    one.append(DETECTION.empty_table(), COVERAGE)
    assert one.coverage() == COVERAGE
    assert one.lookup(["000000"]).num_rows == 0


def test_a_footer_describes_its_run() -> None:
    store = MemoryObjects()
    key = write_run(store, many(10), 3, ["0002-" + "cd" * 16])
    metadata = pq.read_metadata(pa.BufferReader(store.get(key))).metadata
    stampede_metadata = {
        k.decode(): json.loads(v)
        for k, v in metadata.items()
        if k.startswith(b"stampede.") and b"crc32" not in k
    }
    assert Filter(b64decode(stampede_metadata.pop("stampede.filter"))).passes_one(
        OneHash.of("000003")
    )
    assert stampede_metadata == {
        "stampede.format": 1,
        "stampede.level": 3,
        "stampede.table": "detections",
        "stampede.inputs": ["0002-" + "cd" * 16],
        "stampede.coverage": {"alerts/0": [[0, 10]]},
        "stampede.rows": 10,
        "stampede.first": "000000",
        "stampede.last": "000009",
    }
    [run] = Table(store, DETECTIONS).runs()
    assert (run.rows, run.first, run.last, run.coverage) == (10, "000000", "000009", COVERAGE)
    assert run.inputs == ("0002-" + "cd" * 16,)
    assert run.name.level == 3


@pytest.mark.parametrize("cut", [slice(0, -1), slice(0, 50), slice(4, None), slice(0, 0)])
def test_a_damaged_run_is_named(cut: slice) -> None:
    store = MemoryObjects()
    one = Table(store, DETECTIONS)
    key = one.append(many(10), COVERAGE)
    store.put(key, store.get(key)[cut])
    if cut == slice(4, None):  # the footer is undamaged, but the row groups are not where it says
        store.put(key, store.get(key)[-40:])
    one.refresh()
    assert key in one.quarantined()[key]


def test_other_objects_among_the_runs() -> None:
    store = MemoryObjects()
    one = Table(store, DETECTIONS)
    key = one.append(many(10), COVERAGE)
    store.put("tables/detections/README.txt", b"hello")
    one.refresh()
    assert [run.key for run in one.runs()] == [key]
    sink = pa.BufferOutputStream()
    pq.write_table(many(10), sink)
    store.put(RunName(0, "ef" * 16).key("detections"), sink.getvalue().to_pybytes())
    one.refresh()
    [reason] = one.quarantined().values()
    assert re.search(r"efef.*footer", reason)
    assert [run.key for run in one.runs()] == [key]


def test_a_rewritten_listing_time_is_noticed() -> None:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    clock = [now]
    store = MemoryObjects(lambda: clock[0])
    one = Table(store, DETECTIONS)
    one.append(many(10), COVERAGE)
    one.refresh()
    clock[0] += timedelta(hours=1)
    one.append(many(10), COVERAGE)
    one.refresh()
    assert [run.object.modified for run in one.runs()] == [clock[0]]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (f"tables/x/0000-{'ab' * 16}.parquet", RunName(0, "ab" * 16)),
        (f"tables/x/0012-{'ab' * 16}-3of10.parquet", RunName(12, "ab" * 16, 3, 10)),
        (f"tables/x/12-{'ab' * 16}.parquet", None),
        ("tables/x/0000-ab.parquet", None),
        ("tables/x/", None),
    ],
)
def test_names(key: str, name: RunName | None) -> None:
    assert RunName.parse(key) == name
    if name:
        assert name.key("x") == key


@given(st.lists(st.text(), min_size=1))
def test_sortable_keeps_the_order_of_strings(values: list) -> None:
    try:
        codes = sortable(sorted(values), DETECTIONS)
    except UnicodeEncodeError:
        return  # half a surrogate pair: no column can hold it
    assert list(codes) == sorted(codes)


def test_a_run_keeps_every_bit_of_its_rows() -> None:
    values = [math.nan, -0.0, 0.0, math.inf, -math.inf, None, 2.0**-149]
    rows = [dict(detection("1", n), flux=value, ra=value) for n, value in enumerate(values)]
    one = Table(MemoryObjects(), DETECTIONS)
    one.append(table(rows), COVERAGE)
    assert bits(one.lookup(["1"])) == bits(rows)
