"""The clients of other servers, unmodified, with what Stampede gives.

`make servers` makes their environment, .venv-brokers, from the hashed requirements-brokers.txt.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stampede.alerts.columns import DETECTION
from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.read.access.bearer_tokens import line_of, new_token
from stampede.read.app import make_app
from stampede.runtime.timescale import TAI_MINUS_UTC
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import POSITIONS
from stampede.store.tables.table import Table
from tests.support.alerts import made_alerts
from tests.support.alerts.fits_files import lsst, source
from tests.support.read.read_service import (
    BODY,
    LSST_ALERT,
    LSST_OBJECT,
    ZTF_ALERT,
    ZTF_OBJECT,
    fill,
    keep,
    observe,
    sample_cutouts,
    sample_points,
    serving,
)
from tests.support.store.stored_packets import FIELDS, store

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-brokers" / "bin" / "python"
IDS = [ZTF_OBJECT, str(ZTF_ALERT), LSST_OBJECT, str(LSST_ALERT)]

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def objects() -> MemoryObjects:
    """A store of one object of each survey, each with an alert that has all its cutouts."""
    objects, coverage = MemoryObjects(), Coverage.of({("alerts", 0): [1, 2]})
    cutouts = [row for row in sample_cutouts() if row["alert_id"] in (ZTF_ALERT, LSST_ALERT)]
    for row in cutouts:
        row["fits"] = row["fits"] or lsst(source(30, seed=9))
    fill(objects, cutouts, sample_points(), coverage)
    points = pa.Table.from_pylist(sample_points(), DETECTION)
    Table(objects, POSITIONS).append(positions_of(points), coverage)
    keep(objects, ZTF_ALERT, ZTF_OBJECT, 59400.0)
    observe(objects, coverage)
    return objects


@pytest.fixture(scope="module")
def address(objects: MemoryObjects) -> Iterator[str]:
    for read in serving(make_app(Settings(), objects)):
        yield read.url


def run(name: str, *arguments: str) -> dict[str, Any]:
    """What ``with_<name>.py`` prints, in the environment of the clients."""
    if not PYTHON.exists():
        pytest.skip("`make servers` makes .venv-brokers")
    script = Path(__file__).with_name(f"with_{name}.py")
    settings = {
        **os.environ,
        "MPLCONFIGDIR": str(PYTHON.parent),
        "PYTHONPATH": str(ROOT / "client"),
    }
    done = subprocess.run(
        [PYTHON, script, *arguments], env=settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_alerce(address: str, tmp_path: Path) -> None:
    found = run("alerce", address, *IDS, str(tmp_path))
    assert found["object"] == {
        "oid": ZTF_OBJECT,
        "ndet": 2,
        "firstmjd": pytest.approx(59399.0 - TAI_MINUS_UTC, abs=1e-9),
        "lastmjd": pytest.approx(59400.0 - TAI_MINUS_UTC, abs=1e-9),
        "deltajd": 1.0,
        "meanra": 10.0,
        "meandec": -5.0,
    }
    assert (found["objects"], found["none"]) == ([ZTF_OBJECT], 0)
    assert found["detections"] == pytest.approx([27.1526, 23.6713], abs=1e-4)
    (limit,) = found["limits"]
    assert (limit["fid"], limit["diffmaglim"]) == (1, 20.5)
    assert (found["forced"], found["forced frame"], found["votable"]) == (1, 1, 2)
    assert found["curve"] == {"detections": 2, "non_detections": 1}
    kinds, sums = zip(*((stamp[0], stamp[3]) for stamp in found["stamps"]), strict=True)
    assert kinds == ("science", "template", "difference")
    assert sums == pytest.approx([source(seed=number).sum() for number in range(3)], rel=1e-5)
    assert found["numpy"] == 3
    assert found["png"] == [200, "image/png"]
    assert found["avro"] > 1000
    assert found["rubin object"]["oid"] == int(LSST_OBJECT)
    assert found["rubin objects"] == [found["rubin object"]]
    (detection,) = found["rubin detections"]
    assert detection["measurement_id"] == LSST_ALERT
    assert (detection["band_name"], detection["mjd"]) == ("y", 60800.5)
    assert [point["band_name"] for point in found["rubin forced"]] == ["u"]
    assert found["rubin curve"] == {"detections": 1, "forced_photometry": 1, "non_detections": 0}
    assert found["rubin stamps"] == {
        f"cutout{kind}": [30, 30] for kind in ("Science", "Template", "Difference")
    }
    for what in ("probabilities", "of rubin", "features", "magstats", "classifiers", "by class"):
        status, message = found[what]
        assert (status, "ask ALeRCE" in message) == (501, True), what
    assert found["unknown"] == [404, "no detection of object ZTF18aaaaaaa is stored"]


def test_fink(address: str, tmp_path: Path) -> None:
    found = run("fink", address, *IDS, str(tmp_path))
    jd = 2459400.5 - TAI_MINUS_UTC
    assert found["objects"][0] == [ZTF_ALERT, pytest.approx(jd, abs=1e-7), 2, 23.671272, "t"]
    assert [row[4] for row in found["objects"]] == ["t", "f"]
    assert found["tags"] == ["valid", "valid", "upperlim"]
    assert found["by get"] == [{"i:jd": pytest.approx(jd - day, abs=1e-7)} for day in (0, 1)]
    assert found["formats"] == {"json": 2, "csv": 2, "parquet": 2, "votable": 2}
    (near,) = found["cone"]
    assert set(near) == {"i:objectId", "i:magpsf", "i:ra", "i:dec", "v:separation_degree"}
    assert (near["i:objectId"], near["i:magpsf"]) == (ZTF_OBJECT, 23.671272)
    assert near["v:separation_degree"] < 0.5 / 3600
    assert [found[name] for name in ("sexagesimal", "later", "earlier", "none")] == [1, 0, 1, 0]
    assert (found["png"], found["latest"]) == ([63, 63], [63, 63])
    assert found["fits"][0] == pytest.approx(found["fits"][1])
    assert found["fits"][0] == pytest.approx(float(source(seed=0).sum()), rel=1e-5)
    (of_rubin,) = found["rubin object"]
    assert (of_rubin["r:diaObjectId"], of_rubin["r:nDiaSources"]) == (int(LSST_OBJECT), 1)
    (measured,) = found["rubin sources"]
    assert measured["r:diaSourceId"] == LSST_ALERT
    assert (measured["r:psfFlux"], measured["r:midpointMjdTai"]) == (1234.5, 60800.5)
    assert found["rubin at"] == 0
    assert (found["rubin forced"], found["rubin cone"]) == (["u"], [int(LSST_OBJECT)])
    assert found["rubin png"] == [30, 30]
    assert found["rubin arrays"] == {
        f"b:cutout{kind}": [30, 30] for kind in ("Science", "Template", "Difference")
    }
    for what in ("tag", "class"):
        assert found[what][0] == 501, what
        assert "ask Fink" in found[what][1]
    assert found["added"][0] == 501
    assert "d:cdsxmatch" in found["added"][1]
    assert found["colour"][0] == 501
    assert [found[what][0] for what in ("radius", "bad", "unknown", "misspelt")] == [
        *(400, 400, 404, 400),
    ]


def test_lasair(address: str, tmp_path: Path) -> None:
    found = run("lasair", address, *IDS, str(tmp_path))
    both = {one["object"] for one in found["all"]["objects"]}
    assert both == {int(LSST_OBJECT), ZTF_OBJECT}
    assert found["all"]["count"] == 2
    assert found["nearest"]["nearest"] == found["all"]["nearest"]
    assert found["all"]["nearest"]["separation"] < 0.5
    assert found["count"] == {"count": 2}
    assert found["none"] == {"objects": [], "count": 0, "nearest": {}}
    assert found["none near"] == {}
    flux = {"psfFlux": 1234.5, "psfFluxErr": 100.1}
    assert found["object"]["diaObjectId"] == int(LSST_OBJECT)
    assert found["object"]["diaObject"] == {
        **{"ra": 10.0, "decl": -5.0},
        **{"firstDiaSourceMjdTai": 60800.5, "lastDiaSourceMjdTai": 60800.5},
    }
    assert found["object"]["diaSourcesList"] == [
        {"diaSourceId": LSST_ALERT, "midpointMjdTai": 60800.5, "band": "y"}
        | {"reliability": 0.9, **flux}
    ]
    assert found["object"]["diaForcedSourcesList"] == [
        {"midpointMjdTai": 60700.5, "band": "u", **flux}
    ]
    assert found["object"]["lasairData"]["nDiaSources"] == 1
    assert "lasairData" not in found["whole"]
    assert found["whole"]["diaSourcesList"][0]["scienceFlux"] == 2000.0
    assert (found["ztf"], found["image"]) == (ZTF_OBJECT, [200, 200])
    assert (found["reply"]["status"], "Lasair" in found["reply"]["detail"]) == (501, True)
    for what in ("query", "sherlock", "annotate"):
        assert found[what].startswith("HTTP return code 501"), what
    assert found["wide"].startswith("Bad Request")
    assert found["unknown"].startswith("HTTP return code 404")


def test_herald(tmp_path: Path) -> None:
    images = [lsst(source(30, seed=seed)) for seed in range(3)]
    record = made_alerts.rubin_record(1101, 3) | dict(zip(FIELDS, images, strict=True))
    alert_id = record["diaSource"]["diaSourceId"]
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path, refresh_seconds=0)
    store(settings, [made_alerts.confluent(record, 1101)])
    for read in serving(make_app(settings)):
        found = run("herald", read.url, *IDS[:3], str(alert_id), str(tmp_path))
    assert found["links"] == [
        ["#this", "application/x-avro-ocf"],
        ["#cutout", "application/fits"],
        ["#detached-header", "application/json"],
    ]
    assert (found["id"], found["type"]) == (alert_id, "application/x-avro-ocf")
    sums = [float(source(30, seed=seed).sum()) for seed in (2, 0, 1)]
    assert found["images"] == {
        name: [30, 30, pytest.approx(total, rel=1e-5)]
        for name, total in zip(("DIFFIM", "SCIENCE", "TEMPLATE"), sums, strict=True)
    }
    assert (found["same"], found["image"]) == (True, True)
    assert found["schema"].endswith("alert")
    assert [found[what] for what in ("tables", "xml", "object", "missing", "other")] == [
        *(501, 400, 400, 400, 400),
    ]
    assert found["unknown"] == [404, 404, 404, 404]


def test_mcp(objects: MemoryObjects, tmp_path: Path) -> None:
    """Stampede's own server for programs that read for people, by the SDK's client over stdio."""
    (tmp_path / "tokens").write_text(line_of(token := new_token(), "reader", ["*"]))
    for read in serving(make_app(Settings(tokens=tmp_path / "tokens"), objects)):
        found = run("mcp", read.url, *IDS, token)
        refused = run("mcp", read.url, *IDS, "")
    assert "needs a token" in refused["curve"]["error"]
    names = ("search", "light_curve", "moving_object", "cutout", "alert", "cone", "recent")
    assert found["tools"] == [[name, True] for name in (*names, "ledger", "docs")]
    assert found["described"]
    an_object, an_alert, near = found["search"]
    assert an_object["object"]["points"] == 4
    assert an_object["object"]["bands"] == ["g", "r"]
    assert an_alert["alert"]["object_id"] == ZTF_OBJECT
    assert {one["object_id"] for one in near["objects"]} == {ZTF_OBJECT, LSST_OBJECT}
    assert (found["curve"]["points"], found["curve"]["shown"]) == (4, 4)
    brightest = found["curve"]["rows"][2]
    assert (brightest["mjd"], brightest["flux"], brightest["flux_err"]) == (59400.0, 1234.5, 100.1)
    assert (brightest["source_id"], brightest["band"]) == (str(ZTF_ALERT), "r")
    assert [point["flux"] for point in found["curve"]["rows"]] == [None, -50.0, 1234.5, None]
    assert [point["forced"] for point in found["chosen"]["rows"]] == [True]
    assert (found["body"]["designation"], found["body"]["observations"]) == (BODY, 3)
    first, *_, last = found["body"]["rows"]
    assert (first["phase_angle"], first["helio_distance"]) == (12.5, 2.7)
    assert (last["alert_id"], last["mjd"], last["band"]) == (str(ZTF_ALERT), 59401.0, "g")
    assert last["phase_angle"] is None
    assert found["picture"] == ["image/png", b"\x89PNG\r\n\x1a\n".hex()]
    assert (found["cone"]["count"], found["cone"]["shown"]) == (2, 1)
    assert found["empty"] == {"objects": [], "count": 0, "shown": 0}
    assert [*found["alert"]["fields"]] == ["objectId"]
    assert len(found["recent"]["alerts"]) == 1
    assert {entry["table"] for entry in found["ledger"]["ledger"]} >= {"cutouts", "detections"}
    assert "# Stampede" in str(found["docs"])
    for what, words in (
        ("unknown", "no alert and no object has the id 12"),
        ("no body", "no alert of the body '12' is stored"),
        ("kind", "is no kind of cutout"),
        ("most", "from 1 to 500"),
        ("position", "north"),
    ):
        assert words in found[what]["error"], found[what]
