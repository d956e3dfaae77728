"""`stampede import` as an operator runs it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.archives import write_ztf, ztf_row
from tests.support.waiting import eventually

# Starts processes: too slow for the quick loop.
pytestmark = pytest.mark.integration


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    return {"STAMPEDE_STORE": f"file://{tmp_path}/store"}


def keys(tmp_path: Path) -> list[str]:
    store = tmp_path / "store"
    return sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())


def test_a_folder_is_imported_once_however_often_it_is_given(run, store, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    (folder / "field0686").mkdir(parents=True)
    write_ztf(folder / "field0686" / "ztf.parquet")
    (folder / "notes.txt").write_text("not for us")
    done = run("import", "ztfdr24", str(folder), **store)
    assert done.status == 0, done.err
    taken, points = done.out.splitlines()
    assert points == "5 points stored"
    assert "format ztf-dr: " in taken
    assert "time hmjd (MJD, UTC)" in taken
    assert (there := keys(tmp_path))
    assert {key.partition("/")[0] for key in there} == {"tables"}
    again = run("import", "ztfdr24", str(folder), **store)
    assert (again.status, again.out) == (0, done.out)
    assert keys(tmp_path) == there


def test_a_dry_run_stores_nothing(run, store, tmp_path: Path) -> None:
    file = write_ztf(tmp_path / "ztf.parquet")
    done = run("import", "ztfdr24", str(file), "--dry-run", **store)
    assert done.status == 0, done.err
    assert "5 points would be stored, nothing was" in done.out
    assert keys(tmp_path) == []


def test_faults_are_named_and_the_rest_is_stored(run, store, tmp_path: Path) -> None:
    rows = [ztf_row(), ztf_row(epochs=2, mag=[18.0]), ztf_row(epochs=2, mag=[18.0, 99.0])]
    file = write_ztf(tmp_path / "ztf.parquet", rows)
    (broken := tmp_path / "broken.parquet").write_bytes(file.read_bytes()[:-9])
    (lines := tmp_path / "more.jsonl").write_text(
        json.dumps(
            {
                "object_id": "J1",
                "mjd": 58000.5,
                "band": "V",
                "ra": 10,
                "dec": -5,
                "mag": 15.5,
                "magerr": 0.1,
            }
        )
        + "\n{not JSON}\n"
    )
    done = run("import", "ztfdr24", *map(str, (file, broken, lines)), **store)
    assert done.status == 1, done.err
    out = done.out.splitlines()
    assert "5 points stored" in out
    assert (
        f"{file}, row 2: its lists have several lengths: hmjd 2, mag 1, magerr 2, catflags 2" in out
    )
    assert f"{file}, row 3: 99.0 is no magnitude" in out
    assert any(line.startswith(f"{broken}: it is not a Parquet file: ") for line in out)
    assert any(line.startswith(f"{lines}, row 2: it is not JSON: ") for line in out)
    assert out[-1] == "4 faults"


def test_an_archive_is_removed_by_its_name_alone(run, store, tmp_path: Path) -> None:
    file = str(write_ztf(tmp_path / "ztf.parquet"))
    for name in ("ztfdr23", "ztfdr24"):
        assert run("import", name, file, **store).status == 0
    counted = run("purge", "--archive", "ztfdr23", "--check", **store)
    assert (counted.status, counted.out.splitlines()) == (
        1,
        [
            "tables/detections: 1 run with such rows",
            "tables/positions: 1 run with such rows",
        ],
    )
    removed = run("purge", "--archive", "ztfdr23", **store)
    assert (removed.status, "tables/detections: 1 run rewritten" in removed.out) == (0, True)
    again = run("purge", "--archive", "ztfdr23", "--check", **store)
    assert (again.status, again.out) == (0, "nothing is of an archive ztfdr23\n")
    assert run("purge", "--archive", "ztfdr24", "--check", **store).status == 1
    refused = run("purge", "--archive", "ztf", **store).one_line()
    assert refused == "ztf is a survey that sends alerts: give the archive another name"


def test_it_stops_at_ctrl_c_and_goes_on_when_it_is_run_again(run, store, tmp_path: Path) -> None:
    file = write_ztf(tmp_path / "ztf.parquet")
    row = json.dumps(
        {"object_id": "J1", "mjd": 58000.5, "band": "V", "ra": 10, "dec": -5, "mag": 15.5}
    )
    (many := tmp_path / "many.jsonl").write_text(f"{row}\n" * 300_000)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("STAMPEDE_", "K_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "stampede", "import", "ztfdr24", str(file), str(many)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env=clean | {"XDG_DATA_HOME": str(tmp_path / "data"), "TERM": "dumb"} | store,
    )  # fmt: skip
    eventually(lambda: len(keys(tmp_path)) >= 2, 60)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "; run the same again to store the rest" in " ".join(err.split())
    assert run("import", "ztfdr24", str(file), **store).out.endswith("5 points stored\n")


WRONG = {
    "ZTF": "'ZTF' is no name of an archive: 2 to 16 small letters and digits",
    "ztf": "ztf is a survey that sends alerts: give the archive another name",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_name_that_an_archive_may_not_have(name: str, run, store, tmp_path: Path) -> None:
    file = write_ztf(tmp_path / "ztf.parquet")
    assert run("import", name, str(file), **store).one_line() == WRONG[name]


def test_what_is_not_there(run, store, tmp_path: Path) -> None:
    missing = tmp_path / "missing.parquet"
    assert run("import", "dr", str(missing), **store).one_line() == f"there is no file {missing}"
