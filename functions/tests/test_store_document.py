"""docs/store.md is true: its SQL reads a bucket that a reader has never seen."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import stampede_client
from stampede.alerts.columns import CUTOUT
from stampede.alerts.columns import MOVING as OBSERVATION
from stampede.alerts.positions import positions_of
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.runs.packed_coverage import packed
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, MOVING, POSITIONS
from stampede.store.tables.checkpoint_files import put_checkpoint
from stampede.store.tables.table import Table
from tests.support.read.read_service import ZTF_ALERT, sample_observations
from tests.support.releases.documented import DOCUMENT, kinds
from tests.support.store.rows import cutout, detection, table

FIRST = Coverage.of({("alerts", 0): range(5)})
FORMAT = b"stampede.format\x18\x011"  # key and value in a footer
SECOND = Coverage.of({("alerts", 0): range(5, 9)})


@pytest.fixture
def queries() -> list[str]:
    return re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    objects = DirectoryObjects(tmp_path)
    light_curves = Table(objects, DETECTIONS)
    light_curves.append(table([detection("000007", n) for n in range(4)]), FIRST)
    newer = [detection("000007", 3, 1), detection("000007", 4), detection("000008", 5)]
    light_curves.append(table(newer), SECOND)
    rows = [cutout(alert, kind, b"FITS %d" % alert) for alert in (6, 7) for kind in ("a", "b")]
    pack = write_pack(table(rows, CUTOUT), FIRST)
    objects.put(pack.key, memoryview(pack.data))
    Table(objects, CUTOUTS).append(pack.locations, FIRST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_light_curve(queries: list[str], bucket: Path) -> None:
    found = duckdb.sql(queries[0]).fetchall()
    assert [(mjd, flux) for mjd, _, flux, *_ in found] == [
        (60000.0, 0.0),
        (60001.0, 0.0),
        (60002.0, 0.0),
        (60003.0, 1.0),
        (60004.0, 0.0),
    ]


def other_format(root: Path, key: str) -> None:
    data = (root / key).read_bytes()
    assert data.count(FORMAT) == 1
    (root / key).write_bytes(data.replace(FORMAT, FORMAT[:-1] + b"9"))


def other_name(root: Path, key: str) -> None:
    (root / key).rename((root / key).with_name(f"0000-{'0' * 32}.parquet"))


def lost(root: Path, key: str) -> None:
    (root / key).unlink()


@pytest.mark.parametrize("harm", [other_format, other_name, lost])
def test_duckdb_believes_what_it_reads(
    queries: list[str], bucket: Path, harm: Callable[[Path, str], None]
) -> None:
    """The document says what DuckDB does not check, and who checks it."""
    objects = DirectoryObjects(bucket)
    runs = Table(objects, DETECTIONS).listed()
    put_checkpoint(objects, DETECTIONS, runs)
    harm(bucket, max(runs, key=lambda run: run.key).key)
    assert duckdb.sql(queries[0]).fetchall()
    with pytest.raises(stampede_client.Incomplete):
        stampede_client.detections(str(bucket)).arrow(["000007"])
    text = DOCUMENT.read_text().partition("## Reading it with DuckDB")[2].partition("```")[0]
    for word in ("CRC-32 of a footer", "names", "`stampede.format`", "a run is lost"):
        assert word in text


def test_cutouts(queries: list[str], bucket: Path) -> None:
    found = sorted(duckdb.sql(queries[1]).fetchall())
    assert found == [(None, "a", b"FITS 7"), (None, "b", b"FITS 7")]


def test_coverage(queries: list[str], bucket: Path) -> None:
    found = [Coverage.from_json(text) for _, text in duckdb.sql(queries[2]).fetchall()]
    assert Coverage.union(found) == FIRST | SECOND
    assert len(found) == 2


@pytest.mark.parametrize("nights", [1, 9])
def test_offsets_in_ten_lines(nights: int, tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    table_of_nights = Table(DirectoryObjects(tmp_path), DETECTIONS)
    spans = {(f"ztf_{n}@{n:022}", p): range(n, 99) for n in range(nights) for p in range(16)}
    coverage = packed(Coverage.of(spans))
    key = table_of_nights.append(table([detection("a", 1)]), coverage)
    made = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / key)], capture_output=True, check=True
    )
    found = json.loads(made.stdout)
    if nights == 1:
        assert found == {f"{topic}/{number}": [[0, 99]] for topic, number in spans}
    else:
        assert found == {f"ztf_{n}@{n:022}": [[p, n, 99] for p in range(16)] for n in range(nights)}


def test_positions(queries: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"near": 1.5, "nearest": 0.5, "outside": 6.0}
    points = [
        detection(name, number) | {"ra": 0.814167, "dec": 16.145556 + arcsec / 3600}
        for number, (name, arcsec) in enumerate(places.items())
    ]
    Table(DirectoryObjects(tmp_path), POSITIONS).append(positions_of(table(points)), FIRST)
    monkeypatch.chdir(tmp_path)
    [query] = [query for query in queries if "positions" in query]
    found = duckdb.sql(query).fetchall()
    assert [row[0] for row in found] == ["nearest", "near"]
    assert found[0][-1] == pytest.approx(0.5, abs=1e-6)


def test_moving_objects(
    queries: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, first = Table(DirectoryObjects(tmp_path), MOVING), sample_observations()
    again = first[0] | {"flux": 1.0, "processed_mjd": 59403.0}
    for rows, coverage in ((first, FIRST), ([again, first[1] | {"designation": "1"}], SECOND)):
        runs.append(table(rows, OBSERVATION), coverage)
    monkeypatch.chdir(tmp_path)
    [query] = [query for query in queries if "tables/moving" in query]
    found = {row[-1]: row for row in duckdb.sql(query).fetchall()}
    assert {alert_id: row[2] for alert_id, row in found.items()} == {
        **{11: 1.0, 12: 9000.0, ZTF_ALERT: 9000.0},
    }
    assert (found[12][3], found[ZTF_ALERT][3]) == (13.0, None)


def test_layout_is_as_drawn(bucket: Path) -> None:
    keys = [info.key for info in DirectoryObjects(bucket).list("")]
    assert len(keys) == 4
    for key in keys:
        assert any(kind.fullmatch(key) for kind in kinds().values()), key
