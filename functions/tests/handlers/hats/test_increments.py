"""Later calls write what has changed and no more, and end where one call at once would."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from stampede.errors import StoreDown
from stampede.handlers.hats import collection
from stampede.handlers.hats import points as hats_points
from stampede.handlers.hats.catalogue import publish
from stampede.handlers.hats.files import Cell
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.handlers.hats.test_publish import add
from tests.support.read.read_service import point
from tests.support.store.rows import table as points_table
from tests.support.store.watched_objects import Watched


def contents(files: DirectoryObjects) -> dict[str, list[dict]]:
    """The rows of each pixel and of each file of the index; of others nothing."""
    return {
        info.key: pq.read_table(files.root / info.key, partitioning=None).to_pylist()
        if info.key.endswith(".parquet")
        else []
        for info in files.list("")
    }


def nights(seed: int, objects: int = 40) -> list[list[dict]]:
    """Points by night about a corner of base pixels: some move, some are withdrawn."""
    chosen = np.random.default_rng(seed)
    places = np.array([45.0, 0.0]) + chosen.normal(0, 0.01, (objects, 2))
    found: list[list[dict]] = []
    for night in range(5):
        points = []
        for n in chosen.choice(objects, 12, replace=False).tolist():
            ra, dec = places[n] + (chosen.normal(0, 0.005, 2) if n < 6 else 0)
            sources = [dict(source=100 * night + n, withdrawn=False)]
            if night and n > 30:  # all that it had
                sources = [dict(source=100 * k + n, withdrawn=True) for k in range(night + 1)]
            points += [
                point(
                    f"o{n}",
                    "ztf",
                    each["source"],
                    59000.0 + each["source"] // 100,
                    ra=float(ra),
                    dec=float(dec),
                    withdrawn=each["withdrawn"],
                    processed_mjd=6e4 + night,
                )
                for each in sources
            ]
        found.append(points)
    return found


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_nights_one_by_one_in_any_order_are_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, few: int
) -> None:
    monkeypatch.setattr(hats_points, "FEW", few)
    monkeypatch.setattr(collection, "IDS_OF_PART", 8)
    batches = nights(seed)
    results = []
    for name, order in (("forth", range(5)), ("back", range(4, -1, -1))):
        objects, files = MemoryObjects(), DirectoryObjects(tmp_path / name)
        for n in order:
            add(objects, points_table(batches[n]), Coverage.of({("t", 0): [n]}))
            done = publish(objects, files, "sky", most=3)
        fresh = DirectoryObjects(tmp_path / f"{name}-at-once")
        assert publish(objects, fresh, "sky", most=3).moving == done.moving > 0
        assert contents(files) == contents(fresh)
        results.append(contents(fresh))
    assert results[0] == results[1]
    assert any("objects_margin" in key and rows for key, rows in results[0].items())


def test_a_night_writes_the_pixels_of_its_objects_alone(tmp_path: Path) -> None:
    places = np.random.default_rng(1).uniform([44.9, -0.1], [45.1, 0.1], (400, 2)).tolist()
    objects, files = MemoryObjects(), DirectoryObjects(tmp_path / "sky")
    points = [
        point(f"o{n}", "ztf", n + 1, 59000.0, ra=ra, dec=dec) for n, (ra, dec) in enumerate(places)
    ]
    add(objects, points_table(points), Coverage.of({("t", 0): [0]}))
    first = publish(objects, files, "sky", most=20)
    stored = contents(files)
    edge = next(
        rows[0] for key, rows in stored.items() if key.startswith("objects_margin/") and rows
    )
    with_it = {
        key: files.head(key).size
        for key, rows in stored.items()
        if "/Norder=" in key and edge["object_id"] in [row["object_id"] for row in rows]
    }
    assert first.written > 20 > len(with_it) > 1  # it is in a margin too
    again = point(edge["object_id"], "ztf", 1000, 59001.0, ra=edge["ra"], dec=edge["dec"])
    add(objects, points_table([again]), Coverage.of({("t", 0): [1]}))
    watched = Watched(files)
    assert publish(objects, watched, "sky", most=20).written == len(with_it)
    rows_written = {key for verb, key in watched.calls if verb == "put" and "parquet" in key}
    assert rows_written == with_it.keys()
    described = watched.count("put") - len(with_it)
    assert described == 5 + 5 + 4 + 2  # objects, margin, index; collection and state
    # A pixel that stays has its footer read; one that is written is read, and its new footer too.
    assert watched.count("head") <= first.written + 4
    assert watched.count("get") <= first.written + len(with_it) + 4
    assert watched.count("delete") == 0
    assert sum(files.head(key).size for key in rows_written) <= 1.2 * sum(with_it.values())


@pytest.mark.parametrize("torn", [False, True])
def test_a_pass_killed_at_any_write_leaves_lists_that_are_true(tmp_path: Path, torn: bool) -> None:
    """What a list names is there, and the next pass ends where one at once would."""
    batches = nights(1)
    crash_at = 0
    while True:
        objects, files = MemoryObjects(), DirectoryObjects(tmp_path / str(crash_at))
        for n, batch in enumerate(batches[:2]):
            if n:
                publish(objects, files, "sky", most=3)
            add(objects, points_table(batch), Coverage.of({("t", 0): [n]}))
        watched = Watched(files, crash_at=crash_at, torn=torn)
        try:
            publish(objects, watched, "sky", most=3)
        except StoreDown:
            assert listed(files) <= {info.key for info in files.list("")}
        else:
            break
        publish(objects, files, "sky", most=3)
        fresh = DirectoryObjects(tmp_path / f"{crash_at}-at-once")
        publish(objects, fresh, "sky", most=3)
        assert contents(files) == contents(fresh)
        crash_at += 7
    assert crash_at > 20


def listed(files: DirectoryObjects) -> set[str]:
    """The keys of the pixels in the lists of the collection."""
    found = set()
    for info in files.list(""):
        catalogue, _, name = info.key.partition("/")
        if name == "partition_info.csv":
            lines = files.get(info.key).decode().split()[1:]
            cells = [Cell(catalogue, *map(int, line.split(","))) for line in lines]
            found |= {cell.key for cell in cells}
    return found


def test_a_catalogue_of_an_older_version_is_replaced(tmp_path: Path) -> None:
    objects, files = MemoryObjects(), DirectoryObjects(tmp_path / "sky")
    add(objects, points_table(nights(1)[0]), Coverage.of({("t", 0): [0]}))
    files.put("stampede.json", b'{"format": 4}')
    old = ("dataset/Norder=0/Dir=0/Npix=4.parquet", "dataset/_metadata", "properties")
    for key in (*old, "hats.properties", "partition_info.csv", "notes.txt"):
        files.put(key, b"old")
    publish(objects, files, "sky")
    roots = {info.key for info in files.list("") if info.key.count("/") == 0}
    assert roots == {"collection.properties", "stampede.json", "notes.txt"}
    assert not [*files.list("dataset/")]


def test_the_index_has_each_object_once_also_where_two_surveys_have_an_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "IDS_OF_PART", 1)  # a file for each id
    objects, files = MemoryObjects(), DirectoryObjects(tmp_path / "sky")
    points = [
        point(name, survey, 1, 59000.0, ra=ra)
        for name, survey, ra in (("a", "ztf", 10.0), ("a", "lsst", 200.0), ("b", "ztf", 10.0))
    ]
    add(objects, points_table(points), Coverage.of({("t", 0): [0]}))
    publish(objects, files, "sky")
    parts = [rows for key, rows in contents(files).items() if "/index/" in key]
    assert sorted(row["object_id"] for rows in parts for row in rows) == ["a", "a", "b"]
    cells = {Cell("objects", row["Norder"], row["Npix"]).key for rows in parts for row in rows}
    assert cells == listed(files)
