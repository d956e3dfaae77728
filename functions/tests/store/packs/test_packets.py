"""Packs of packets: plain Parquet for any tool, and one page for each packet."""

import random
from datetime import UTC, datetime

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stampede.alerts.columns import PACKET, PACKET_LOCATION
from stampede.errors import Damaged
from stampede.store.integrity.unindexed_packs import PackIndexCheck, index
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import Pack
from stampede.store.packs.packets import PAGE_BYTES, read_packets, write_packets
from stampede.store.parquet import pages
from stampede.store.runs.schema import PACKETS

COVERAGE = Coverage.of({("ztf", 0): range(3)})


def packet(alert_id: int, data: bytes, object_id: str = "Z1", offset: int | None = None) -> dict:
    return {
        **{"alert_id": alert_id, "survey": "ztf", "object_id": object_id},
        **{"mjd": 60000.0 + alert_id / 1e6, "topic": "ztf", "partition": 0},
        **{"offset": alert_id if offset is None else offset, "key": "k", "headers": '{"a": "1"}'},
        **{"time": datetime(2026, 3, 1, tzinfo=UTC), "packet": data, "crc32": alert_id},
        **{"science_at": 1, "science_length": 600},
    }


def write(rows: list[dict], coverage: Coverage = COVERAGE) -> Pack:
    pieces = [[row["packet"][:7], row["packet"][7:]] for row in rows]
    return write_packets(pa.Table.from_pylist(rows, PACKET), pieces, coverage)


def check(pack: Pack, rows: list[dict]) -> None:
    """Each place is that of its packet."""
    expected = {row["alert_id"]: row["packet"] for row in rows}
    found = {}
    for place in pack.locations.to_pylist():
        page = pack.data.slice(place["offset"], place["length"]).to_pybytes()
        found[place["alert_id"]] = bytes(pages.values(page)[place["row"]])
        assert (place["pack"], place["crc32"]) == (pack.key, place["alert_id"])
        assert (place["science_at"], place["science_length"]) == (1, 600)
    assert found == expected
    assert pack.locations.schema.equals(PACKET_LOCATION)


sizes = st.one_of(st.integers(0, 50), st.integers(0, 5000), st.integers(0, 2 * PAGE_BYTES))


@settings(max_examples=2 * settings.default.max_examples // 5, deadline=None)
@given(st.lists(st.tuples(sizes, st.booleans()), min_size=1, max_size=30))
def test_every_place_is_its_packet(values: list[tuple[int, bool]]) -> None:
    rows = [
        packet(number + 1, np.random.default_rng(number).bytes(size) if noise else bytes(size))
        for number, (size, noise) in enumerate(values)
    ]
    pack = write(rows)
    check(pack, rows)
    random.Random(1).shuffle(rows)
    assert write(rows).data.equals(pack.data)
    again, coverage = read_packets(pack.data, pack.key)
    assert (again.key, coverage) == (pack.key, COVERAGE)
    assert again.locations.equals(pack.locations)


def test_pages_are_small_and_hold_what_repeats() -> None:
    """Each packet is noise that the next one repeats: as a history, or ZTF's schema."""
    history = np.random.default_rng(1).bytes(20_000)
    rows = [
        packet(number, history + bytes([number % 256]) * 100, f"Z{number}")
        for number in range(1, 200)
    ]
    pack = write(rows)
    places = pack.locations.to_pylist()
    found = {(place["offset"], place["length"]) for place in places}
    assert len(found) == -(-199 // -(-PAGE_BYTES // 20_104))
    assert len(pack.data) < 0.06 * 199 * 20_000
    for offset, length in found:
        page = pack.data.slice(offset, length).to_pybytes()
        assert sum(map(len, pages.values(page))) < PAGE_BYTES + 25_000


def test_a_message_sent_twice_has_two_rows_and_one_place() -> None:
    rows = [packet(7, b"same"), packet(7, b"same", offset=9), packet(8, b"other")]
    pack = write(rows)
    assert pack.locations["alert_id"].to_pylist() == [7, 8]
    table = pq.read_table(pa.BufferReader(pack.data))
    assert table["offset"].to_pylist() == [7, 9, 8]
    assert read_packets(pack.data, pack.key)[0].locations.equals(pack.locations)


def test_other_tools_read_a_pack(tmp_path) -> None:
    pack = write([packet(7, b"first", "Z2"), packet(8, b"second", "Z1")])
    path = tmp_path / "pack.parquet"
    path.write_bytes(pack.data)
    rows = duckdb.sql(f"SELECT alert_id, packet, headers, epoch(time) FROM '{path}'").fetchall()
    time = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    assert rows == [(8, b"second", '{"a": "1"}', time), (7, b"first", '{"a": "1"}', time)]


def test_damage_of_a_page_is_found_wherever_it_is() -> None:
    pack = write([packet(n, np.random.default_rng(n).bytes(300)) for n in range(1, 30)])
    place = pack.locations.to_pylist()[0]
    good = pack.data.slice(place["offset"], place["length"]).to_pybytes()
    expected = list(map(bytes, pages.values(good)))
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        try:
            found = list(map(bytes, pages.values(bytes(bad))))
        except Damaged:
            continue
        assert at < 40  # a bit of the header that says nothing of the values
        assert found[: len(expected)] == expected[: len(found)]
    for end in range(0, len(good), 97):
        with pytest.raises(Damaged):
            pages.values(good[:end])


def test_what_is_no_pack_of_packets_is_named() -> None:
    with pytest.raises(Damaged, match="packets/60000/x"):
        read_packets(b"PAR1 nothing", "packets/60000/x.parquet")
    pack = write([packet(7, b"first")])
    with pytest.raises(Damaged, match="digest in its name"):
        read_packets(pack.data, f"packets/60000/{'0' * 32}.parquet")


@pytest.mark.parametrize("coverage", [Coverage(), COVERAGE], ids=["no Kafka offsets", "offsets"])
def test_a_pack_that_no_run_locates_is_found(coverage: Coverage) -> None:
    objects, damaged = MemoryObjects(), list[str]()
    pack = write([packet(n, b"x") for n in (1, 2)], coverage)
    objects.put(pack.key, pack.data.to_pybytes())
    check = PackIndexCheck(objects, PACKETS)
    found = check.lacking(objects.list("packets/"), damaged.append)
    assert [info.key for info in found] == [pack.key]
    index(objects, pack.key)
    assert not list(check.lacking(objects.list("packets/"), damaged.append))
    assert not damaged


def test_a_header_of_structures_within_structures_is_damaged() -> None:
    with pytest.raises(Damaged, match="no page"):
        pages.values(b"\x1c" * 100_000)
