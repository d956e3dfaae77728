"""The readers of the bucket give exactly the rows that a real server gives of the same bucket."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stampede_client
from stampede.alerts.columns import DETECTION
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from stampede_client import store as reader
from stampede_simulator.simulator import Fields, Simulator
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.read.read_service import ZTF_ALERT, fill, sample_cutouts, serving
from tests.support.store import rows

LATEST_MJD = 70_000.0
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "mine-from-python.md"
ONE_OBJECT = sorted(made_alerts.REAL.glob("ztf-one-object/*.avro"))


def bucket(directory: Path, messages: Sequence[bytes], batch: int) -> Path:
    """A bucket with the light curves of these messages, decoded and stored in batches."""
    decoder = make_batch_decoder(directory, LATEST_MJD)
    root = directory / "bucket"
    root.mkdir()
    table = Table(DirectoryObjects(root), DETECTIONS)
    for start in range(0, len(messages), batch):
        found = decoder.detections(list(messages[start : start + batch]))
        assert found.faults == [None] * len(found.faults)
        table.append(found.rows, Coverage.of({("alerts", 0): [start]}))
    table.close()
    return root


def served(root: Path, object_ids: list[str]) -> pa.Table:
    """The rows that the server gives of the bucket."""
    for read in serving(make_app(Settings(), DirectoryObjects(root))):
        response = httpx.post(
            f"{read.url}/v1/lightcurves", params={"format": "arrow"}, json={"ids": object_ids}
        )
        return pa.ipc.open_stream(response.content).read_all()
    raise AssertionError


def stored_rows(root: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in root.glob("tables/detections/*"))


def sorted_rows(table: pa.Table) -> list[dict]:
    """Rows that compare equal if their values are; NaN equals NaN."""
    order = [(name, "ascending") for name in reader.KEY]
    plain = table.sort_by(order).to_pylist()
    return [
        {name: "NaN" if value != value else value for name, value in row.items()} for row in plain
    ]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    alerts = [
        alert for alert in Simulator(3, Fields(objects=12)).alerts(120) if alert.fault is None
    ]
    messages = [alert.body for alert in alerts]
    root = bucket(tmp_path_factory.mktemp("simulated"), messages, 20)
    return root, served(root, sorted({alert.object_id for alert in alerts}))


def test_the_rows_are_those_of_the_server(simulated: tuple[Path, pa.Table]) -> None:
    root, expected = simulated
    found = stampede_client.detections(str(root)).arrow()
    assert stored_rows(root) > expected.num_rows, "no point came twice: this proves nothing"
    assert found.column_names == expected.column_names
    assert sorted_rows(found) == sorted_rows(expected)
    times = list(zip(found["object_id"].to_pylist(), found["mjd"].to_pylist(), strict=True))
    assert times == sorted(times)


def test_polars_and_duckdb_have_the_same_rows(simulated: tuple[Path, pa.Table]) -> None:
    root, expected = simulated
    read = stampede_client.detections(f"file://{root}")
    assert read.polars().height == expected.num_rows
    relation = read.duckdb()
    assert relation.aggregate("count(*)").fetchall() == [(expected.num_rows,)]


def test_some_objects_alone(simulated: tuple[Path, pa.Table]) -> None:
    root, expected = simulated
    names = expected["object_id"].unique().to_pylist()[:3]
    found = stampede_client.detections(str(root)).arrow(objects=names)
    some = expected.filter(pc.is_in(expected["object_id"], pa.array(names)))
    assert sorted_rows(found) == sorted_rows(some)


@pytest.mark.real
@pytest.mark.long
@pytest.mark.skipif(not ONE_OBJECT, reason="the real alerts (../shared/data) are not here")
def test_real_alerts_of_one_object(tmp_path: Path) -> None:
    root = bucket(tmp_path, [path.read_bytes() for path in ONE_OBJECT], 1)
    expected = served(root, ["ZTF21abiuvdk"])
    found = stampede_client.detections(str(root)).arrow()
    assert sorted_rows(found) == sorted_rows(expected)
    assert (stored_rows(root), found.num_rows) == (609, 50), "as mine-from-python.md says"


def test_the_how_to_runs(
    simulated: tuple[Path, pa.Table], capsys: pytest.CaptureFixture[str]
) -> None:
    root, expected = simulated
    fill(DirectoryObjects(root), sample_cutouts(), [], Coverage())
    blocks = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    blocks = [each for each in blocks if "pyspark" not in each]  # test_others.py runs that one
    known = expected["object_id"][0].as_py()
    code = "\n".join(blocks).replace("path/to/bucket", str(root)).replace("ZTF21abiuvdk", known)
    names: dict = {"ALERT": ZTF_ALERT}
    exec(compile(code, HOW_TO.name, "exec"), names)
    *counts, shapes = capsys.readouterr().out.splitlines()
    assert counts == [str(expected.num_rows)] * 2
    assert shapes == "(3, 63, 63) ['science' 'template' 'difference'] []"
    assert names["some"]["object_id"].unique().to_pylist() == [known]
    assert names["brightest"].height == len(expected["object_id"].unique())
    assert sum(points for _, points in names["bands"].fetchall()) == expected.num_rows


def test_withdrawn_points_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    table = Table(DirectoryObjects(tmp_path), DETECTIONS)
    gone = rows.detection("7", 1, 5) | {"withdrawn": True}
    batches = [[rows.detection("7", 1, 9), rows.detection("7", 2)], [gone]]
    for number, batch in enumerate(batches):
        table.append(rows.table(batch), Coverage.of({("alerts", 0): [number]}))
    read = stampede_client.detections(str(tmp_path))
    assert read.arrow()["source_id"].to_pylist() == [2]
    assert read.arrow(withdrawn=True)["source_id"].to_pylist() == [1, 2]


@given(st.lists(rows.detections, max_size=30))
def test_the_version_that_wins_is_the_stores(points: list[dict]) -> None:
    # Equal zeros of both signs are one value here, and the store orders them.
    for point in points:
        point |= {name: value + 0.0 for name, value in point.items() if _is_zero(value)}
    found = reader.winning(rows.table(points))
    expected = sort_unique(rows.table(points), DETECTIONS)
    assert sorted_rows(found) == sorted_rows(expected)


def _is_zero(value: object) -> bool:
    return isinstance(value, float) and not math.isnan(value) and value == 0


def test_the_names_are_the_servers() -> None:
    assert DETECTIONS.key == reader.KEY
    assert DETECTIONS.precedence == reader.PRECEDENCE
    rest = [name for name in DETECTION.names if name not in reader.KEY + reader.PRECEDENCE]
    assert DETECTIONS.compared == (*reader.PRECEDENCE, *rest)


def test_an_empty_bucket_is_named(tmp_path: Path) -> None:
    with pytest.raises(stampede_client.NotFound, match=r"no tables/detections; check the path"):
        stampede_client.detections(str(tmp_path)).arrow()


def test_a_run_without_a_later_column_gives_nulls(tmp_path: Path) -> None:
    old_schema = pa.schema([field for field in DETECTION if field.name != "rb"])
    old = replace(DETECTIONS, schema=old_schema)
    for number, spec in enumerate((DETECTIONS, old), 1):
        found = rows.table([rows.detection(str(number), number) | {"rb": 0.5}])
        table = Table(DirectoryObjects(tmp_path), spec)
        table.append(found.select(spec.schema.names), Coverage.of({("alerts", 0): [number]}))
        table.close()
    read = stampede_client.detections(str(tmp_path)).arrow()
    assert read["rb"].to_pylist() == [0.5, None]
    assert np.array_equal(read["source_id"], [1, 2])
