"""Packs: plain Parquet for any tool, and one byte range per cutout."""

import random
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stampede.alerts.columns import CUTOUT, CUTOUT_LOCATION, KINDS, THUMBNAIL, THUMBNAIL_LOCATION
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.alert_versions import shown
from stampede.store.packs.pack import Pack, expired, read_pack, write_pack
from stampede.store.packs.pack_name import night_of
from stampede.store.runs.schema import THUMBNAIL_PACKS
from tests.support.store.located import image_in
from tests.support.store.rows import cutout, table

COVERAGE = Coverage.of({("ztf", 0): range(3)})


def pack_of(rows: list) -> Pack:
    return write_pack(table(rows, CUTOUT), COVERAGE)


def noise(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def check(pack: Pack, rows: list) -> None:
    """Each place is that of its cutout, and its range of the pack is the image."""
    data = pack.data.to_pybytes()
    expected = {(row["alert_id"], row["kind"]): row["fits"] for row in rows}
    found = {}
    for place in pack.locations.to_pylist():
        if place["pack"] is None:
            first = CUTOUT_LOCATION.names.index("pack")
            assert not any(place[name] for name in CUTOUT_LOCATION.names[first:-1])
        else:
            assert place["pack"] == pack.key
        found[place["alert_id"], place["kind"]] = image_in(data, place)
    assert found == expected
    assert pack.locations.num_rows == len(expected)
    assert pack.locations.schema.equals(CUTOUT_LOCATION)
    assert read_pack(pack.data)[0].locations.equals(pack.locations)


sizes = st.one_of(st.none(), st.integers(0, 40), st.integers(0, 3000), st.integers(0, 1 << 20))


@settings(max_examples=2 * settings.default.max_examples // 5)
@given(st.lists(st.tuples(sizes, st.booleans()), max_size=40))
def test_every_place_is_its_cutout(values: list) -> None:
    # Zeros and equal cutouts are the easiest for a search to confuse.
    rows = [
        cutout(n // 3, KINDS[n % 3], None if size is None else bytes(size) if zero else noise(size))
        for n, (size, zero) in enumerate(values)
    ]
    check(pack_of(rows), rows)


@pytest.mark.parametrize(
    "fits",
    [
        pytest.param([], id="no rows"),
        pytest.param([None] * 6, id="all null"),
        pytest.param([b""] * 3000, id="all empty"),
        pytest.param([None, b"x"] * 2000, id="nulls among them"),
        pytest.param([noise(20 << 20)] * 3, id="beyond a page", marks=pytest.mark.long),
        pytest.param([noise(64)] * 3000, id="all the same"),
        pytest.param([b"PAR1", b"\4\0\0\0PAR1", b"\0\0\0\0" * 9], id="looks like Parquet"),
    ],
)
def test_pages_of_all_kinds(fits: list) -> None:
    rows = [cutout(n // 3, KINDS[n % 3], value) for n, value in enumerate(fits)]
    check(pack_of(rows), rows)


def test_same_rows_same_bytes() -> None:
    rows = [cutout(n // 3, KINDS[n % 3], noise(n * 10, n)) for n in range(90)]
    first = pack_of(rows)
    shuffled = random.Random(2).sample(rows, len(rows))
    assert pack_of(shuffled + shuffled[:20]).data.equals(first.data)
    assert pack_of(shuffled).key == first.key
    assert pack_of(rows[1:]).key != first.key
    assert write_pack(table(rows, CUTOUT), Coverage()).key != first.key


def test_an_image_wins_against_a_null_with_the_same_key() -> None:
    rows = [cutout(1, "science", None), cutout(1, "science", b"image")]
    for ordered in (rows, rows[::-1]):
        assert pa.Table.from_batches(pack_of(ordered).locations.to_batches())[
            "length"
        ].to_pylist() == [5]


def test_key_is_the_night_and_the_content() -> None:
    pack = pack_of([cutout(1, "science", b"a", 61000.9), cutout(2, "science", b"a", 61002.1)])
    assert pack.key.startswith("packs/61002/")
    assert pack_of([]).key.startswith("packs/0/")
    # An S3 endpoint refuses bytes that do not have the digest that is sent with them.
    assert pack.sha256 == sha256(pack.data).hexdigest()
    assert pack.key.endswith(f"/{pack.sha256[:32]}.parquet")


def test_the_footer_tells_whether_a_pack_is_of_one_survey() -> None:
    """So functions of others need not read it: eventing/README.md says how."""

    def surveys(*names: str) -> tuple[str, str]:
        rows = [cutout(1, "science", b"a") | {"survey": name} for name in names]
        group = pq.read_metadata(pa.BufferReader(pack_of(rows).data)).row_group(0)
        (column,) = [
            group.column(number)
            for number in range(group.num_columns)
            if group.column(number).path_in_schema == "survey"
        ]
        return column.statistics.min, column.statistics.max

    assert surveys("ztf", "ztf") == ("ztf", "ztf")
    assert surveys("ztf", "lsst") == ("lsst", "ztf")


def test_the_cutouts_of_an_alert_are_one_page() -> None:
    rows = [cutout(n, kind, noise(15_000, n)) for kind in KINDS for n in (3, 1, 2)]
    places = pack_of(rows).locations.to_pylist()
    assert [place["alert_id"] for place in places] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    pages = [(place["page_offset"], place["page_length"]) for place in places]
    assert pages[::3] == pages[1::3] == pages[2::3]
    assert [start + length for start, length in pages[:6:3]] < [start for start, _ in pages[3::3]]
    starts = [place["start"] for place in places[:3]]
    assert np.diff(starts).tolist() == [15_004, 15_004]


def test_a_pack_is_read_back_from_its_bytes() -> None:
    rows = [cutout(1, "science", noise(100)), cutout(1, "template", None)]
    pack = pack_of(rows)
    again, coverage = read_pack(memoryview(pack.data))
    assert again.key == pack.key
    assert again.locations.equals(pack.locations)
    assert coverage == COVERAGE


def test_each_message_has_its_page() -> None:
    """An alert may come in many versions: a page of all would be larger than a reader takes."""
    rows = [
        cutout(alert, kind, noise(3000, alert)) | {"message_crc32": message}
        for kind in KINDS
        for message in (9, None, 5)
        for alert in (2, 1)
    ]
    pack = pack_of(rows)
    pages: dict[int, set[tuple]] = {}
    for place in pack.locations.to_pylist():
        message = place["alert_id"], place["message_crc32"]
        pages.setdefault(place["page_offset"], set()).add(message)
    assert [*pages.values()] == [{(alert, one)} for alert in (1, 2) for one in (None, 5, 9)]
    assert read_pack(pack.data)[0].locations.equals(pack.locations)


def test_versions_of_an_alert_in_one_pack() -> None:
    rows = [
        cutout(1, kind, noise(n)) | {"message_crc32": crc32}
        for n, crc32 in enumerate((2**32 - 1, 5, None))
        for kind in KINDS
    ]
    pack = pack_of(rows)
    places = pack.locations
    assert places.num_rows == 9
    assert places.filter(pc.equal(places["kind"], "science"))["message_crc32"].to_pylist() == [
        None,
        5,
        2**32 - 1,
    ]
    assert shown(places)["message_crc32"].to_pylist() == [2**32 - 1] * 3
    again, _ = read_pack(pack.data)
    assert again.locations.equals(places)


def test_other_tools_read_a_pack(tmp_path: Path) -> None:
    rows = [
        cutout(n // 3, KINDS[n % 3], None if n % 7 == 0 else noise(n * 99))
        | {"message_crc32": None if n % 5 == 0 else 2**32 - 1 - n // 3}
        for n in range(60)
    ]
    rows.sort(key=lambda row: (row["alert_id"], row["message_crc32"] or 0, row["kind"]))
    path = tmp_path / "pack.parquet"
    path.write_bytes(pack_of(rows).data)
    packed = [{**row, "tail": row["fits"] and b""} for row in rows]
    assert pq.read_table(path, page_checksum_verification=True).to_pylist() == packed
    assert polars.read_parquet(path).to_dicts() == packed
    names = ", ".join(f'"{name}"' for name in CUTOUT.names[:-1])
    found = duckdb.sql(
        f"SELECT {names}, fits || tail FROM '{path}' "
        "ORDER BY alert_id, message_crc32 NULLS FIRST, kind"
    ).fetchall()
    assert found == [tuple(row.values()) for row in rows]
    assert duckdb.sql(f"SELECT kind FROM '{path}' WHERE alert_id = 7").fetchall() == [
        ("difference",),
        ("science",),
        ("template",),
    ]
    group = pq.read_metadata(path).row_group(0)
    statistics = group.column(0).statistics
    assert (statistics.min, statistics.max) == (0, 19)
    statistics = group.column(CUTOUT.get_field_index("message_crc32")).statistics
    assert (statistics.min, statistics.max) == (2**32 - 20, 2**32 - 1)


def test_thumbnails_are_packed_as_cutouts_are() -> None:
    rows = [
        dict.fromkeys(THUMBNAIL.names)
        | {"alert_id": n, "survey": "ztf", "object_id": "Z", "mjd": 61000.5, "png": noise(n * 50)}
        | {"drawn_from": 2**32 - 1 - n}
        for n in range(99)
    ]
    pack = write_pack(table(rows[::-1], THUMBNAIL), COVERAGE, THUMBNAIL_PACKS)
    assert pack.key.startswith("thumbnails/61000/")
    assert pack.locations.schema.equals(THUMBNAIL_LOCATION)
    data = pack.data.to_pybytes()
    found = [data[p["offset"] :][: p["length"]] for p in pack.locations.to_pylist()]
    assert found == [row["png"] for row in rows]
    assert set(pack.locations["pack"].to_pylist()) == {pack.key}
    assert pack.locations["drawn_from"].to_pylist() == [row["drawn_from"] for row in rows]
    again, coverage = read_pack(data, THUMBNAIL_PACKS)
    assert (again.key, coverage) == (pack.key, COVERAGE)
    assert again.locations.equals(pack.locations)


def test_a_pack_of_thumbnails_that_do_not_say_what_they_were_drawn_from_is_read() -> None:
    """As an earlier version wrote it."""
    names = [name for name in THUMBNAIL.names if name != "drawn_from"]
    schema = pa.schema([THUMBNAIL.field(name) for name in names])
    earlier = replace(THUMBNAIL_PACKS, rows=replace(THUMBNAIL_PACKS.rows, schema=schema))
    row = dict.fromkeys(names) | {"survey": "ztf", "object_id": "Z", "mjd": 61000.5}
    rows = [row | {"alert_id": number, "png": noise(50)} for number in range(9)]
    pack = write_pack(table(rows, schema), COVERAGE, earlier)
    assert pq.read_schema(pa.BufferReader(pack.data)).names == names
    again, _ = read_pack(pack.data, THUMBNAIL_PACKS, pack.key)
    assert again.locations.equals(pack.locations)
    assert again.locations["drawn_from"].null_count == len(rows)


def test_the_key_holds_the_night() -> None:
    pack = pack_of([cutout(1, "science", b"a", 61000.9)])
    assert night_of(pack.key) == 61000
    assert night_of(pack.key.replace("packs", "thumbnails")) == 61000
    for key in (
        "",
        "packs/61000/x.parquet",
        f"old/{pack.key}",
        f"{pack.key}.gz",
        "tables/cutouts/",
    ):
        assert night_of(key) is None


def test_a_pack_is_kept_for_so_many_days_after_its_night() -> None:
    key = pack_of([cutout(1, "science", b"a", 61000.9)]).key
    assert not expired(key, None, 99999.0)
    assert not expired(key, 7, 61007.99)
    assert expired(key, 7, 61008.0)
    assert not expired(key, 0, 61000.99)
    assert expired(key, 0, 61001.0)
    assert not expired("tables/cutouts/x.parquet", 0, 99999.0)
