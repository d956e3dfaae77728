"""`publish hats`: the points that readers get, and only the pixels that have new ones written."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.alerts.columns import DETECTION
from stampede.alerts.positions import positions_of
from stampede.errors import Damaged, SetupError
from stampede.handlers.hats import points as hats_points
from stampede.handlers.hats.catalogue import publish
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.table import Table
from tests.support.read.read_service import point


class Sky:
    """A store to which points are added, each batch a run, and its catalogue."""

    def __init__(self, folder: Path) -> None:
        self.objects, self.folder, self._batches = MemoryObjects(), folder / "sky", 0
        self.files = DirectoryObjects(self.folder)

    def add(self, *points: dict) -> None:
        rows = pa.Table.from_pylist(list(points), DETECTION)
        coverage = Coverage.of({("t", 0): [self._batches]})
        self._batches += 1
        Table(self.objects, POSITIONS).append(positions_of(rows), coverage)
        Table(self.objects, DETECTIONS).append(rows, coverage)

    def curves(self, catalogue: str = "objects") -> dict[str, list[int]]:
        """By object the ids of its points, in the order of the catalogue."""
        tables = [
            pq.read_table(path, partitioning=None)
            for path in self.folder.glob(f"{catalogue}/dataset/Norder=*/Dir=*/Npix=*.parquet")
        ]
        rows = [row for table in tables for row in table.to_pylist()]
        assert all(row["points"] == len(row["lightcurve"]["mjd"]) for row in rows)
        assert len({row["object_id"] for row in rows}) == len(rows)
        return {row["object_id"]: row["lightcurve"]["source_id"] for row in rows}


@pytest.fixture
def sky(tmp_path: Path) -> Sky:
    """Three objects in three pixels of order 0."""
    sky = Sky(tmp_path)
    for name, ra, dec in (("a", 45.0, 0.1), ("b", 200.0, 60.0), ("c", 10.0, -80.0)):
        number = ord(name) * 10
        sky.add(
            point(name, "ztf", number, 59001.0, ra=ra, dec=dec),
            point(name, "ztf", number + 1, 59000.0, ra=ra, dec=dec),
        )
    return sky


def test_only_pixels_with_new_points_are_written(sky: Sky) -> None:
    assert publish(sky.objects, sky.files, "sky")[:4] == (0, 3, 3, 3)
    assert sky.curves() == {"a": [971, 970], "b": [981, 980], "c": [991, 990]}
    assert publish(sky.objects, sky.files, "sky").written == 0
    sky.add(point("b", "ztf", 5, 58000.0, ra=200.0, dec=60.0))  # earlier than all others
    done = publish(sky.objects, sky.files, "sky")
    assert (done.written, done.objects, done.points) == (1, 3, 7)
    assert sky.curves()["b"] == [5, 981, 980]
    assert publish(sky.objects, sky.files, "sky", again=True).written == 3


def test_withdrawn_points_and_objects_go(sky: Sky) -> None:
    publish(sky.objects, sky.files, "sky")
    gone = {"ra": 10.0, "dec": -80.0, "withdrawn": True, "processed_mjd": 60000.0}
    sky.add(*(point("c", "ztf", number, 59001.0, **gone) for number in (990, 991)))
    done = publish(sky.objects, sky.files, "sky")
    assert (done.pixels, done.objects) == (2, 2)
    assert set(sky.curves()) == {"a", "b"}
    assert "hats_nrows=2" in (sky.folder / "objects/hats.properties").read_text().splitlines()


def test_an_object_that_moves_is_in_a_catalogue_of_its_own(sky: Sky) -> None:
    publish(sky.objects, sky.files, "sky")
    assert not [*sky.files.list("moving/")]
    sky.add(
        point("a", "ztf", 7, 59500.0, ra=200.1, dec=60.0),
        point("b", "ztf", 8, 59500.0, ra=200.0, dec=60.0 + 4 / 3600),  # scatter
    )
    done = publish(sky.objects, sky.files, "sky")
    assert (done.pixels, done.objects, done.moving) == (2, 2, 1)
    assert sky.curves() == {"b": [981, 980, 8], "c": [991, 990]}
    assert sky.curves("moving") == {"a": [971, 970, 7]}
    assert b"hats_nrows=1\n" in sky.files.get("moving/hats.properties")


@pytest.mark.parametrize("few", [0, 1000])
def test_a_catalogue_kept_up_is_one_made_at_once(
    sky: Sky, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(hats_points, "FEW", few)
    for batch in (
        [
            point("e", "ztf", 11, 59100.0, ra=45.1, dec=0.2),
            point("a", "ztf", 12, 59002.0, ra=45.0, dec=0.1),
        ],
        [point("a", "ztf", 13, 59600.0, ra=200.1, dec=60.0)],  # moves
        [point("e", "ztf", 11, 59100.0, ra=45.1, dec=0.2, withdrawn=True, processed_mjd=6e4)],
        [
            point("e", "ztf", 14, 59700.0, ra=45.1, dec=0.2),
            point("e", "lsst", 9, 59700.0, ra=45.1, dec=0.2),
        ],
    ):
        publish(sky.objects, sky.files, "sky")
        sky.add(*batch)
    done = publish(sky.objects, sky.files, "sky")
    fresh = DirectoryObjects(tmp_path / "fresh")
    assert publish(sky.objects, fresh, "sky")._replace(written=done.written) == done
    keys = [info.key for info in fresh.list("")]
    assert keys == [info.key for info in sky.files.list("")]
    for key in keys:
        if not key.endswith(".parquet"):
            continue
        kept, made = (
            pq.read_table(files.root / key, partitioning=None) for files in (sky.files, fresh)
        )
        assert kept.to_pylist() == made.to_pylist()


def test_more_objects_make_smaller_pixels_where_they_are(sky: Sky) -> None:
    publish(sky.objects, sky.files, "sky")
    sky.add(*(point(f"d{n}", "ztf", n + 1, 59000.0, ra=44.0 + n, dec=1.0) for n in range(5)))
    done = publish(sky.objects, sky.files, "sky", most=2)
    assert done.order > 0
    assert len(sky.curves()) == 8
    assert done.written == done.pixels - 2  # those of b and c stay as they are


def test_damage_is_an_error_and_not_a_gap(sky: Sky) -> None:
    publish(sky.objects, sky.files, "sky")
    before = sky.curves()
    sky.objects.put(f"tables/detections/0000-{'a' * 32}.parquet", b"what is this?")
    with pytest.raises(Damaged, match="the catalogue would lack"):
        publish(sky.objects, sky.files, "sky", again=True)
    assert sky.curves() == before


def test_a_folder_of_others_is_not_written(sky: Sky, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SetupError, match="file is there, of no catalogue"):
        publish(sky.objects, DirectoryObjects(tmp_path), "sky")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_empty_store_has_nothing_to_publish(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="nothing to publish"):
        publish(MemoryObjects(), DirectoryObjects(tmp_path / "sky"), "sky")
    assert not (tmp_path / "sky").exists()
