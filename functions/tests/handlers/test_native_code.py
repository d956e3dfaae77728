"""Compiled libraries of others in a process that sees bytes of strangers are all on record."""

import re
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from stampede.read.formats.light_curves import FORMATS
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede_simulator.simulator import Simulator
from tests.support.read.read_service import (
    BOTH,
    ZTF_ALERT,
    ZTF_OBJECT,
    draw,
    fill,
    keep,
    sample_cutouts,
    sample_points,
)
from tests.support.served import Served

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux has /proc"),
]
TABLE = Path(__file__).parents[3] / "docs" / "measurements" / "0054-native-code.md"
GETS = [
    "/",
    f"/v1/alerts/{ZTF_ALERT}",
    f"/v1/alerts/{ZTF_ALERT}/packet",
    *(f"/v1/alerts/{ZTF_ALERT}/packet?format={name}" for name in ("ocf", "json", "fits")),
    f"/v1/alerts/{ZTF_ALERT}/schema",
    *(f"/v1/links/alerts?ID={ZTF_ALERT}", f"/v1/links/objects?ID={ZTF_OBJECT}"),
    f"/v1/alerts/{BOTH}/thumbnail?survey=ztf",
    "/v1/cone?ra=10&dec=-5&radius=5",
    "/v1/scs?RA=10&DEC=-5&SR=0.001",
    "/tap/sync?LANG=ADQL&QUERY=SELECT+object_id,+ra+FROM+detections+WHERE+ra+IS+NOT+NULL",
    *("/docs", "/nights", "/proofs", "/ledger", "/openapi.json"),
    *(f"/objects/{ZTF_OBJECT}", f"/alerts/{ZTF_ALERT}", "/cone?ra=10&dec=-5&radius=5"),
    *(f"/v1/objects/{ZTF_OBJECT}/lightcurve?format={name}&magnitudes=true" for name in FORMATS),
    *(f"/v1/alerts/{ZTF_ALERT}/cutouts/science?format={name}" for name in ("png", "npy", "fits")),
    *(f"/v1/objects/{ZTF_OBJECT}/cutouts?format={name}" for name in ("apng", "gif", "tar")),
]
POSTS = {
    "/v1/cutouts": b"%d" % ZTF_ALERT,
    "/v1/lightcurves": ZTF_OBJECT.encode(),
    "/v1/cone?radius=5": b"10,-5",
}


def recorded(process: str) -> set[str]:
    """The packages that the table names for a process."""
    rows = [line.split("|")[1:-1] for line in TABLE.read_text().splitlines() if "| `" in line]
    return {
        name
        for named, processes, *_ in rows
        if process in processes
        for name in re.findall("`(.+?)`", named)
    }


def packages(process: int | None) -> set[str]:
    """The packages whose compiled code a process has in memory."""
    maps = Path(f"/proc/{process}/maps").read_text()
    names = re.findall(r"/site-packages/([^/\s]+)/\S*\.so\b|/site-packages/(\w+)\.\S*\.so", maps)
    found = {(folder or file).removesuffix(".libs").lstrip("_") for folder, file in names}
    return {"PIL" if name == "pillow" else name for name in found}


def test_those_of_read(serve: Callable[..., Served], tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path / "store")
    fill(objects, sample_cutouts(), sample_points(), Coverage.of({("ztf", 0): [1]}))
    draw(objects, [row for row in sample_cutouts() if row["alert_id"] == BOTH], Coverage())
    keep(objects, ZTF_ALERT, ZTF_OBJECT, 59400.0)
    read = serve("read")
    for path in GETS:
        assert read.http.request("GET", read.url + path).status < 400, path
    for path, body in POSTS.items():
        assert read.http.request("POST", read.url + path, body=body).status == 200, path
    assert packages(read.process.pid) == recorded("read")
    children = psutil.Process(read.process.pid).children(recursive=True)
    queries = [packages(child.pid) for child in children]
    assert [found for found in queries if found] == [recorded("query")]


def test_those_of_functions_and_their_workers(serve: Callable[..., Served]) -> None:
    receivers, workers = set(), set()
    for name in ("cutouts", "lightcurves"):
        function = serve(name)
        for offset, alert in enumerate(Simulator(1, codec="snappy").alerts(20)):
            assert function.post(offset, alert.body).status in (200, 204)
        children = psutil.Process(function.process.pid).children(recursive=True)
        receivers |= packages(function.process.pid)
        workers |= set[str]().union(*(packages(child.pid) for child in children))
    assert workers == recorded("worker")
    assert receivers == recorded("receiver")
