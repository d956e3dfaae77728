"""`stampede ingest` with running functions: whole, damaged, foreign and real files."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import fastavro
import pytest

from stampede.config.settings import Settings
from stampede.images.fits import unpack
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.table import Table
from stampede_local.demo import oracle
from tests.support.alerts import made_alerts
from tests.support.store.located import stored_image

pytestmark = pytest.mark.integration


class System:
    """Functions on a store that is a directory, and the commands that use them."""

    def __init__(self, serve: Callable, path: Path) -> None:
        self.data = path / "data"
        self.data.mkdir()
        self.store = f"file://{path}/store"
        urls = {name: serve(name).url for name in ("cutouts", "lightcurves", "deadletters")}
        running = {"pid": os.getpid(), "urls": urls, "store": self.store, "access_key": ""}
        running |= {"secret_key": "", "kafka": "", "topics": ""}
        (self.data / "up.json").write_text(json.dumps(running))

    def run(self, *arguments: object, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "stampede", *map(str, arguments), "--data", str(self.data)],
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ | {"STAMPEDE_KAFKA": "127.0.0.1:1"},
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def letters(self) -> list[dict]:
        output = self.run("deadletters", "list", "--json")
        return [json.loads(line) for line in output.splitlines()]

    @property
    def objects(self):
        return open_objects(Settings(store=self.store))

    def cutouts(self, alert_id: int) -> dict[str, bytes | None]:
        """The FITS files of an alert, not compressed."""
        rows = Table(self.objects, CUTOUTS).lookup([alert_id]).to_pylist()
        return {
            row["kind"]: row["pack"] and unpack(stored_image(self.objects, row) or b"")
            for row in rows
        }


@pytest.fixture
def system(serve: Callable, tmp_path: Path) -> System:
    return System(serve, tmp_path)


def container_of(count: int) -> bytes:
    """Alerts in one container, a block each."""
    out = io.BytesIO()
    schema = fastavro.parse_schema(made_alerts.ztf_schema())
    writer = fastavro.write.Writer(out, schema, "deflate")
    for candid in range(1, count + 1):
        writer.write(made_alerts.ztf_record(candid))
        writer.dump()
    return out.getvalue()


def test_a_damaged_file_of_the_same_name_and_size_is_not_stored(
    system: System, tmp_path: Path
) -> None:
    """And no purge deletes its bytes."""
    path = tmp_path / "1.avro"
    good = made_alerts.ztf_alert(1)
    path.write_bytes(good)
    assert "1 alert: 1 stored, 0 refused" in system.run("ingest", path)
    damaged = good[:-8] + b"\xff" * 8
    path.write_bytes(damaged)
    shown = system.run("ingest", path, status=1)
    assert "1 alert: 0 stored, 1 refused" in shown
    assert f"refused by cutouts and detections: {path}: " in shown
    assert "sync marker" in shown
    assert "0 dead letters removed, 2 kept" in system.run("deadletters", "purge")
    letters = system.letters()
    assert {letter["file"] for letter in letters} == {str(path)}
    system.run("deadletters", "show", letters[0]["id"], "--save", tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == damaged
    assert "nothing is missing" in system.run("audit")


def test_a_cut_off_container_gives_its_whole_records_and_one_dead_letter(
    system: System, tmp_path: Path
) -> None:
    path = tmp_path / "many.avro"
    path.write_bytes(container_of(20)[:-300])
    shown = system.run("ingest", path, status=1)
    stored = {row["alert_id"] for row in Table(system.objects, CUTOUTS).lookup(range(1, 21)).to_pylist()}  # fmt: skip  # noqa: E501
    assert stored == set(range(1, len(stored) + 1))
    assert len(stored) >= 18
    assert f"{len(stored) + 1} alerts: {len(stored)} stored, 1 refused" in shown
    assert "is cut off within a block" in shown
    assert "1 of them are parts of files that cannot be read" in shown
    assert len(system.letters()) == 2  # one of each table
    for letter in system.letters():
        assert str(path) in letter["file"]
        assert "is cut off within a block" in letter["reason"]
    assert "is cut off within a block" in " ".join(system.run("deadletters", "list").split())


def test_a_cut_off_file_of_300_mb_ends(system: System, tmp_path: Path) -> None:
    path = tmp_path / "huge.avro"
    alert = container_of(1)
    with path.open("wb") as file:
        file.write(alert[:-100])
        file.truncate(300 << 20)
    shown = system.run("ingest", path, status=1)
    assert "1 alert: 0 stored, 1 refused" in shown
    assert [letter["bytes"] for letter in system.letters()] == [16 << 20] * 2


def test_links_and_pipes_in_a_folder_are_named_and_left_out(system: System, tmp_path: Path) -> None:
    night = tmp_path / "night"
    night.mkdir()
    (night / "1.avro").write_bytes(made_alerts.ztf_alert(1))
    (tmp_path / "secret").write_text("of another user")
    (night / "2.avro").symlink_to(tmp_path / "secret")
    os.mkfifo(night / "3.avro")
    shown = system.run("ingest", night, status=1)
    assert "1 alert: 1 stored, 0 refused" in shown
    assert (
        f"2 links, devices or pipes left out, for example {night}/2.avro, {night}/3.avro" in shown
    )
    assert not system.letters()
    (night / "2.avro").unlink()
    (night / "3.avro").unlink()
    assert "left out" not in system.run("ingest", night)


def test_refusals_that_differ_in_ids_alone_are_one_line(system: System, tmp_path: Path) -> None:
    night = tmp_path / "night"
    night.mkdir()
    letters = "abcdefghij"
    for number, letter in enumerate(letters, 1):
        negative = made_alerts.ztf_alert(-number, objectId=f"ZTF18aaaaaa{letter}")
        (night / f"{letter}.avro").write_bytes(negative)
        odd = made_alerts.ztf_alert(number, objectId=f"no {letter} name")
        (night / f"odd {letter}.avro").write_bytes(odd)
        (night / f"cut {letter}.avro").write_bytes(negative[:-3])
    shown = system.run("ingest", night, status=1)
    refused = [line for line in shown.splitlines() if line.startswith("  ")]
    assert len(refused) == 3
    assert all(line.startswith("  10 refused by cutouts and detections: ") for line in refused)


REAL = made_alerts.REAL


@pytest.mark.skipif(not REAL.exists(), reason="the real alerts are not here")
def test_real_alerts_from_folders_and_archives_come_back(system: System, tmp_path: Path) -> None:
    """Those of other surveys are refused by name; sending all again changes nothing."""
    night = tmp_path / "night"
    shutil.copytree(REAL / "lsst", night / "lsst")
    shutil.copytree(REAL / "lsst-detectors", night / "detectors")
    shutil.copytree(REAL / "foreign", night / "foreign")
    with tarfile.open(night / "ztf.tar.gz", "w:gz") as archive:
        archive.add(REAL / "ztf", "ztf")
    with tarfile.open(night / "ztf-forced.tar", "w") as archive:
        archive.add(REAL / "ztf-forced", "ztf-forced")
    with tarfile.open(tmp_path / "inner.tar", "w") as archive:
        archive.add(REAL / "ztf-one-object", "one")
    with tarfile.open(night / "outer.tgz", "w:gz") as archive:
        archive.add(tmp_path / "inner.tar", "inner.tar")

    first = system.run("ingest", night)
    assert "156 alerts: 155 stored, 1 refused" in first
    assert "PGIR" in first
    for _ in range(2):
        assert system.run("ingest", night).splitlines()[2:] == first.splitlines()[2:]
    assert "nothing is missing" in system.run("audit")
    assert "0 dead letters removed, 2 kept" in system.run("deadletters", "purge")
    assert {Path(letter["file"]).name for letter in system.letters()} == {"pgir-1.avro"}
    detections = Table(system.objects, DETECTIONS)
    for message in made_alerts.real_alerts():
        head = oracle.head(message)
        assert system.cutouts(head["alert_id"]) == oracle.cutouts(message)
        rows = detections.lookup([head["object_id"]])
        assert head["alert_id"] in rows["source_id"].to_pylist()


def test_without_functions_it_stores_where_the_environment_says(tmp_path: Path) -> None:
    """And not into a Ceph of its own, where no other command would look."""
    (tmp_path / "a.avro").write_bytes(made_alerts.ztf_alert(7))
    store = f"file://{tmp_path}/store"
    done = subprocess.run(
        [sys.executable, "-m", "stampede", "ingest", str(tmp_path / "a.avro")],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"STAMPEDE_STORE": store, "XDG_DATA_HOME": str(tmp_path / "data")},
    )
    assert "1 alert: 1 stored, 0 refused" in done.stdout, done.stdout + done.stderr
    assert [*open_objects(Settings(store=store)).list("packets/")]
    assert not (tmp_path / "data" / "stampede" / "ceph").exists()
