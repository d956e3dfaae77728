"""Run every command of the README and of the pages for one machine, in a reader's order."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from io import BytesIO
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest
from astropy.io import fits, votable
from PIL import Image

from e2e.on_machine.test_tutorial import COMMANDS as TUTORIAL
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import LocalKafka
from stampede_local.ports import free_port
from stampede_simulator.simulator import Simulator

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ONE_MACHINE = (ROOT / "docs" / "how-to" / "one-machine.md").read_text()
ROUTES = (ROOT / "docs" / "routes.md").read_text()


def commands(page: str) -> list[str]:
    return re.findall(r"^\$ (.+)$", page, re.MULTILINE)


# `test_tutorial.py` runs the commands that the README has from the tutorial, and
# `e2e/on_cluster/test_readme.py` those of docs/cluster.md.
COMMANDS = [
    *(command for command in commands(README) if command not in TUTORIAL),
    *commands(ONE_MACHINE),
    *commands(ROUTES),
]
# CI, `test_demo.py` and the tests of the benchmarks run these.
ELSEWHERE = {"make test", "make demo", "make demo ALERTS=path/to/alerts", "make bench"}
pytestmark = pytest.mark.timeout(1800)


class Reader:
    """A reader who follows the pages in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ran: set[str] = set()
        self.places: dict[str, str] = {}
        self.env = os.environ | {
            "XDG_DATA_HOME": str(directory / "share"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "120",
        }

    def command(self, begins: str) -> list[str]:
        """The command that equals or begins with this text; placeholders are replaced."""
        (line,) = [c for c in COMMANDS if c == begins] or [
            c for c in COMMANDS if c.startswith(begins)
        ]
        self.ran.add(line)
        for placeholder, value in self.places.items():
            line = line.replace(placeholder, value)
        return shlex.split(line)

    def run(self, begins: str, status: int = 0) -> str:
        done = subprocess.run(
            self.command(begins),
            cwd=self.directory,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def start(self, begins: str, *more: str) -> subprocess.Popen[bytes]:
        command = [*self.command(begins), *more]
        with (self.directory / "up.log").open("wb") as log:
            up = subprocess.Popen(command, cwd=self.directory, env=self.env, stdout=log, stderr=log)
        printed = self.directory / "up.log"
        while "ready: " not in printed.read_text():
            assert up.poll() is None, printed.read_text()
            time.sleep(0.2)
        return up


def stop(up: subprocess.Popen[bytes]) -> None:
    up.send_signal(signal.SIGINT)
    assert up.wait(180) == 0


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def test_readme(reader: Reader, tmp_path: Path) -> None:
    install(reader, tmp_path / "clone")
    alerts = tmp_path / "alerts"
    simulate = ["stampede", "simulate", "--alerts", "40", "--seed", "7", "--to", str(alerts)]
    subprocess.run(simulate, env=reader.env, check=True, timeout=300)
    reader.places = {"path/to/alerts": str(alerts), "8080": "8080"}

    up = reader.start("stampede up")
    try:
        reader.run("stampede simulate")
        deadline = time.monotonic() + 400
        while "nothing is missing" not in audit(reader):
            assert time.monotonic() < deadline, audit(reader)
            time.sleep(1)
        reader.run("stampede audit")
        assert "processes are running" in reader.run("stampede status")
        assert "nothing is missing" in reader.run("stampede ingest")
        run_curl_commands(reader)
        run_notebook(reader)
    finally:
        stop(up)

    with (
        LocalCeph(tmp_path / "ceph", free_port(2), "memstore", gigabytes=2) as ceph,
        LocalKafka(tmp_path / "kafka", free_port(2)) as kafka,
    ):
        reader.places |= {
            "--kafka HOST:PORT": f"--kafka {kafka.bootstrap}",
            "https://HOST:PORT/BUCKET": f"{ceph.endpoint}/mine",
        }
        reader.env |= {
            "STAMPEDE_ACCESS_KEY": ceph.keys.access_key,
            "STAMPEDE_SECRET_KEY": ceph.keys.secret_key,
        }
        stop(reader.start("stampede up --kafka"))

    assert set(COMMANDS) - reader.ran - ELSEWHERE == set()


def install(reader: Reader, clone: Path) -> None:
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    inside = Reader(clone)
    inside.run("python3 -m venv")
    inside.run(".venv/bin/pip install --require-hashes")
    inside.run(".venv/bin/pip install --no-deps")
    assert "audit" in inside.run(".venv/bin/stampede --help")
    reader.ran |= inside.ran


def audit(reader: Reader) -> str:
    done = subprocess.run(
        ["stampede", "audit"], env=reader.env, capture_output=True, text=True, timeout=300
    )
    return done.stdout + done.stderr


def run_curl_commands(reader: Reader) -> None:
    """Run the curl commands, and check the files they write."""
    alerts = Simulator(1, keep_light_curves=False).alerts(1000)
    alert = next(a for a in alerts if a.survey == "lsst" and all(a.fits.values()))
    reader.places |= {"ALERT": str(alert.alert_id), "OBJECT": alert.object_id}
    here = reader.directory

    reader.run("curl http://127.0.0.1:8080/v1/alerts/ALERT/cutouts/science")
    assert (here / "science.fits").read_bytes() == alert.fits["science"]
    with fits.open(here / "science.fits") as hdus:
        assert hdus[0].data.ndim == 2
    reader.run("curl http://127.0.0.1:8080/v1/alerts/ALERT/cutouts/difference")
    with Image.open(here / "difference.png") as picture:
        assert picture.format == "PNG"
    curve = json.loads(reader.run("curl http://127.0.0.1:8080/v1/objects/OBJECT/lightcurve"))
    assert str(alert.alert_id) in {row["source_id"] for row in curve["detections"]}
    known = json.loads(reader.run("curl http://127.0.0.1:8080/v1/objects/OBJECT/lightcurve?asof="))
    assert str(alert.alert_id) in {row["source_id"] for row in known["detections"]}
    reader.run("curl http://127.0.0.1:8080/v1/objects/OBJECT/lightcurve?format=votable")
    point = next(row for row in curve["detections"] if row["source_id"] == str(alert.alert_id))
    here_instead = f"ra={point['ra']}&dec={point['dec']}"
    reader.places["ra=00:03:15.4&dec=16:08:44"] = here_instead
    cone = json.loads(reader.run("curl 'http://127.0.0.1:8080/v1/cone"))
    assert alert.object_id in {found["object_id"] for found in cone["objects"]}
    table = votable.parse_single_table(str(here / "lightcurve.vot"))
    assert len(table.array) == len(curve["detections"])
    reader.run("curl http://127.0.0.1:8080/v1/lightcurves")
    assert pq.read_table(here / "lightcurves.parquet").num_rows == len(curve["detections"])
    reader.run("curl 'http://127.0.0.1:8080/v1/lightcurves?asof=alert")
    told = pq.read_table(here / "known.parquet")
    assert {*told["alert_id"].to_pylist()} == {alert.alert_id}
    assert alert.alert_id in told["source_id"].to_pylist()
    reader.run("curl http://127.0.0.1:8080/v1/cutouts")
    with tarfile.open(here / "cutouts.tar") as tar:
        assert len([name for name in tar.getnames() if str(alert.alert_id) in name]) == 3
    assert json.loads(reader.run("curl http://127.0.0.1:8080/v1/ledger"))
    body = stored_body()
    reader.places["2011_UW158"] = body.replace(" ", "_")
    assert f'"{body}"' in reader.run("curl http://127.0.0.1:8080/v1/moving/")


def stored_body() -> str:
    """The designation of a body of the solar system that a stored alert shows."""
    query = urlencode({"LANG": "ADQL", "QUERY": "SELECT TOP 1 designation FROM moving"})
    with urlopen(f"http://127.0.0.1:8080/tap/sync?{query}") as answer:
        table = votable.parse_single_table(BytesIO(answer.read()))
    return str(table.array["designation"][0])


def run_notebook(reader: Reader) -> None:
    """Run the code that reads the bucket with Polars."""
    (code,) = re.findall(r"```python\n(.*?)```", ONE_MACHINE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=reader.env | {"PYTHONPATH": str(ROOT / "client")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
