"""matplotlib, lightkurve, LSDB and Spark, unmodified, with what Stampede gives.

`make servers` makes their environments, .venv-lightkurve and so on, from the hashed
requirements-lightkurve.txt and so on.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from stampede.alerts.positions import CELLS, positions_of
from stampede.config.settings import Settings
from stampede.handlers.hats import catalogue as hats
from stampede.read.app import make_app
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.range_lookup import Ranges, rows_in
from stampede.store.tables.table import Table
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.read.read_service import ZTF_OBJECT, point, serving
from tests.support.store.rows import table as points_table

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.integration


def run(package: str, *arguments: str) -> str:
    """The output of ``with_<package>.py`` in the environment of that package."""
    python = ROOT / f".venv-{package}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"`make servers` makes {python.parents[1].name}")
    done = subprocess.run(
        [python, Path(__file__).with_name(f"with_{package}.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "client")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_light_curves_are_drawn_and_go_to_lightkurve(url: str) -> None:
    assert run("lightkurve", url, ZTF_OBJECT) == "drawn g r\n"


def test_spark_gives_the_points_of_the_server(tmp_path: Path) -> None:
    """As the how-to says."""
    alerts = [
        alert for alert in Simulator(3, Fields(objects=12)).alerts(120) if alert.fault is None
    ]
    decoder = make_batch_decoder(tmp_path, 70_000.0)
    table = Table(DirectoryObjects(tmp_path / "bucket"), DETECTIONS)
    for begin in range(0, len(alerts), 20):
        found = decoder.detections([alert.body for alert in alerts[begin : begin + 20]])
        table.append(found.rows, Coverage.of({("alerts", 0): [begin]}))
    served = []
    for read in serving(make_app(Settings(), DirectoryObjects(tmp_path / "bucket"))):
        for name in sorted({alert.object_id for alert in alerts}):
            points = json.loads(read(f"/v1/objects/{name}/lightcurve").data)["detections"]
            served += [[name, point["mjd"], single(point["flux"])] for point in points]
    rows, points = json.loads(run("spark", str(tmp_path / "bucket")).splitlines()[-1])
    assert rows > len(points)
    assert points == sorted(served, key=str)


def single(value: float | None) -> float | None:
    """The float32 of which JSON has the shortest digits."""
    return None if value is None else float(np.float32(value))


def test_lsdb_opens_a_catalogue_with_the_points_of_the_server(tmp_path: Path) -> None:
    alerts = [
        alert for alert in Simulator(3, Fields(objects=12)).alerts(120) if alert.fault is None
    ]
    decoder = make_batch_decoder(tmp_path, 70_000.0)
    objects, folder = MemoryObjects(), tmp_path / "catalogue"
    for begin, end in ((0, 100), (100, len(alerts))):
        found = decoder.detections([alert.body for alert in alerts[begin:end]])
        coverage = Coverage.of({("alerts", 0): range(begin, end)})
        Table(objects, POSITIONS).append(positions_of(found.rows), coverage)
        Table(objects, DETECTIONS).append(found.rows, coverage)
        hats.publish(objects, DirectoryObjects(folder), "catalogue", most=4)
    names = sorted({alert.object_id for alert in alerts})
    served = {}
    for read in serving(make_app(Settings(), objects)):
        for name in names:
            points = json.loads(read(f"/v1/objects/{name}/lightcurve").data)["detections"]
            flux = sum(point["flux"] or 0 for point in points)
            served[name] = [len(points), pytest.approx(flux, rel=1e-4)]
        first = Table(objects, POSITIONS)
        first.refresh()
        some = next(rows_in(first, Ranges(np.array([0]), np.array([CELLS])))).slice(0, 1)
    [row] = some.to_pylist()
    opened = json.loads(run("lsdb", str(folder), str(row["ra"]), str(row["dec"])))
    assert opened["rows"] == len(served)
    assert opened["curves"] == served
    assert row["object_id"] in opened["near"]
    assert opened["searched"] == {name: [name] for name in names[:3]}
    assert opened["valid"]  # though no object is in a margin


def test_a_cross_match_with_lsdb_is_all_pairs_also_over_edges_of_pixels(tmp_path: Path) -> None:
    """A crowd about a corner of pixels of each order, and few objects elsewhere."""
    chosen = np.random.default_rng(1)
    ra = np.append(45 + chosen.normal(0, 0.01, 300), [200.0, 359.9999, 0.0001])
    dec = np.append(chosen.normal(0, 0.01, 300), [60.0, -30.0, -30.0])
    detections = [
        point(f"o{n}", "ztf", n + 1, 59000.0, ra=each[0], dec=each[1])
        for n, each in enumerate(np.column_stack([ra, dec]).tolist())
    ]
    rows, coverage = points_table(detections), Coverage.of({("alerts", 0): [0]})
    objects, folder = MemoryObjects(), tmp_path / "sky"
    Table(objects, POSITIONS).append(positions_of(rows), coverage)
    Table(objects, DETECTIONS).append(rows, coverage)
    done = hats.publish(objects, DirectoryObjects(folder), "sky", most=20)
    assert done.pixels > 10
    given = np.column_stack([ra, dec]) + chosen.normal(0, 5 / 3600, (len(ra), 2))
    given[:, 0] %= 360
    distances = separations(given, np.column_stack([ra, dec]))
    expected = [[int(at), f"o{n}"] for at, n in np.argwhere(distances <= 10)]
    opened = json.loads(run("lsdb", str(folder), "45", "0", json.dumps(given.tolist())))
    assert opened["valid"]
    assert opened["pairs"] == sorted(expected)


def test_lsdb_opens_the_objects_that_move_apart(tmp_path: Path) -> None:
    """Asteroids of Rubin's alerts, and each object once in one of the catalogues."""
    simulator = Simulator(5, Fields(objects=40), Mix(lsst_share=1.0, solar_system=0.5))
    alerts = [alert for alert in simulator.alerts(300) if alert.fault is None]
    rows = make_batch_decoder(tmp_path, 70_000.0).detections([each.body for each in alerts]).rows
    objects, folder = MemoryObjects(), tmp_path / "sky"
    coverage = Coverage.of({("alerts", 0): range(len(alerts))})
    Table(objects, POSITIONS).append(positions_of(rows), coverage)
    Table(objects, DETECTIONS).append(rows, coverage)
    done = hats.publish(objects, DirectoryObjects(folder), "sky")
    opened = [json.loads(run("lsdb", str(each), "45", "0")) for each in (folder, folder / "moving")]
    fixed, moving = (each["curves"].keys() for each in opened)
    assert all(each["valid"] for each in opened)
    assert (len(fixed), len(moving)) == (done.objects, done.moving)
    assert not fixed & moving
    seen = {alert.object_id for alert in alerts if alert.kind == "mover"}
    assert moving <= seen
    assert len(moving) > len(seen & fixed)  # those have one alert


def separations(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Arcsec between each of some positions and each of others: (n, m)."""
    first, second = (
        np.stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)], axis=-1)
        for ra, dec in (np.radians(places).T for places in (ones, others))
    )
    chords = np.linalg.norm(first[:, None] - second[None], axis=2)
    return np.degrees(2 * np.arcsin(chords / 2)) * 3600
