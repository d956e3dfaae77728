"""`stampede get` writes what the read service answers, or says in one line why it does not."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socket import SHUT_RDWR, create_connection, create_server, socket

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from stampede.cli import cutout_files
from stampede.cli.download import Server
from stampede.cli.get import get
from stampede.errors import SetupError, StampedeError
from stampede.read.app import make_app
from stampede.settings import Settings
from stampede.store.memory import MemoryObjects
from tests.support.fits_files import source
from tests.support.read_service import (
    BOTH,
    LSST_ALERT,
    LSST_OBJECT,
    ZTF_ALERT,
    ZTF_OBJECT,
    Reader,
    sample_store,
    serving,
)


@pytest.fixture(scope="module")
def objects() -> MemoryObjects:
    return sample_store()


@pytest.fixture(scope="module")
def read(objects: MemoryObjects) -> Iterator[Reader]:
    yield from serving(make_app(Settings(), objects))


@pytest.fixture
def run(read: Reader) -> Callable[..., Result]:
    return lambda *words: CliRunner().invoke(get, [*map(str, words), "--url", read.url])


def test_rows_are_those_of_the_server_in_each_format(run, read: Reader, tmp_path: Path) -> None:
    path = f"/v1/objects/{ZTF_OBJECT}/lightcurve"
    for format in ("csv", "json", "votable", "parquet"):
        out = tmp_path / format
        assert run("lightcurve", ZTF_OBJECT, "--format", format, "--out", out).exit_code == 0
        assert out.read_bytes() == read(f"{path}?format={format}").data
    assert pq.read_table(tmp_path / "parquet").num_rows == 4
    found = run("lightcurve", ZTF_OBJECT, LSST_OBJECT, "--magnitudes")
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    assert {row["object_id"] for row in rows} == {ZTF_OBJECT, LSST_OBJECT}
    assert "mag_err" in rows[0]


def test_cutouts_are_the_files_of_the_survey(run, tmp_path: Path) -> None:
    found = run("cutouts", LSST_ALERT, ZTF_ALERT, "--out", tmp_path)
    assert found.exit_code == 0
    lines = [f"5 files in {tmp_path}/", f"stampede: no such cutouts: {LSST_ALERT}/template"]
    assert found.stderr.splitlines() == lines
    file = tmp_path / str(ZTF_ALERT) / "science.fits.gz"
    assert source(seed=0).astype(">f4").tobytes() in gzip.decompress(file.read_bytes())
    found = run("cutouts", LSST_ALERT, 12345, "--out", tmp_path)
    assert found.exit_code == 1
    assert "unknown alerts: 12345" in found.stderr


def test_cutouts_go_on_where_they_were_stopped(
    run, read: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutout_files, "BATCH", 1)
    ids = "\n".join(map(str, (ZTF_ALERT, 12345, LSST_ALERT)))
    with cut_short(read.url, 12 << 10) as url:
        server = Server(url, None)
        with pytest.raises(StampedeError, match="try again"):
            cutout_files.fetch(server, [str(ZTF_ALERT)], tmp_path)
    [half] = tmp_path.iterdir()
    assert half.name == f"{ZTF_ALERT}.partial"
    (half / "left.fits.gz").touch()

    class Stop(Exception):
        pass

    def stop(line: str) -> None:
        raise Stop

    with pytest.raises(Stop):
        cutout_files.fetch(Server(read.url, None), ids.split(), tmp_path, stop)
    assert {path.name for path in tmp_path.iterdir()} == {str(ZTF_ALERT)}
    found = CliRunner().invoke(
        get, ["cutouts", "-", "--url", read.url, "--out", str(tmp_path)], input=ids
    )
    progress = ["2 of 3 alerts", "3 of 3 alerts", f"2 files in {tmp_path}/; 1 alerts were there"]
    assert found.stderr.splitlines()[:3] == progress
    assert found.exit_code == 1  # 12345 is unknown
    undisturbed = tmp_path / "undisturbed"
    run("cutouts", ZTF_ALERT, LSST_ALERT, "--out", undisturbed)
    assert files_in(undisturbed).items() <= files_in(tmp_path).items()
    assert len(files_in(undisturbed)) == 5


def files_in(folder: Path) -> dict[str, bytes]:
    """The content of each file of alerts."""
    paths = folder.glob("*/*.gz")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@contextmanager
def cut_short(url: str, length: int) -> Iterator[str]:
    """A server whose connection breaks after so many bytes of an answer of another one."""

    def pump(source: socket, sink: socket, left: int) -> None:
        while left and (piece := source.recv(left)):
            sink.sendall(piece)
            left -= len(piece)
        source.shutdown(SHUT_RDWR)
        sink.shutdown(SHUT_RDWR)

    def relay() -> None:
        host, port = url.removeprefix("http://").split(":")
        with listening.accept()[0] as client, create_connection((host, int(port))) as server:
            asking = pool.submit(pump, client, server, 1 << 16)
            pump(server, client, length)
            asking.exception()

    with create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(2) as pool:
        done = pool.submit(relay)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        done.result()


def test_cone_packet_and_recent(run, read: Reader, tmp_path: Path) -> None:
    found = run("cone", "00:40:00 -05:00:00", "--radius", "1arcmin", "--format", "json")
    assert found.stdout_bytes == read("/v1/cone?ra=10&dec=-5&radius=60&format=json").data
    assert run("packet", ZTF_ALERT, "--out", tmp_path / "p").exit_code == 0
    assert (tmp_path / "p").read_bytes() == read(f"/v1/alerts/{ZTF_ALERT}/packet").data
    assert len(json.loads(run("recent", "--limit", 3).stdout)["alerts"]) == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("lightcurve", "ZTF18nothere"), "ZTF18nothere"),
        (("lightcurve", "a!b"), "not an object id"),
        (("cone", "here"), "'here' is no position: give"),
        (("cone", "10 -5", "--radius", "5 apples"), "0 to 180 degrees"),
        (("packet", BOTH), f"{BOTH}"),
        (("cutouts", "x"), "not an alert id"),
        (("recent", "--out", "/nowhere/x"), "cannot write /nowhere/x: No such file"),
    ],
)
def test_an_error_is_a_line_that_says_why(run, words: tuple, why: str) -> None:
    error = run(*words).exception
    assert isinstance(error, StampedeError)
    assert why in error.message
    assert "\n" not in error.message


def test_no_server_is_said_with_what_to_do() -> None:
    for url, why in (("http://127.0.0.1:9", "check --url"), ("here", "give one like http")):
        error = CliRunner().invoke(get, ["recent", "--url", url]).exception
        assert isinstance(error, SetupError)
        assert why in error.message


def test_an_answer_that_may_lack_something_exits_with_1() -> None:
    objects = sample_store()
    objects.put(f"tables/detections/0000-{'a' * 32}.parquet", b"what is this?")
    for reader in serving(make_app(Settings(), objects)):
        found = CliRunner().invoke(get, ["lightcurve", ZTF_OBJECT, "--url", reader.url])
        assert found.exit_code == 1
        assert "may lack something: 1 damaged objects" in found.stderr
        assert ZTF_OBJECT in found.stdout
