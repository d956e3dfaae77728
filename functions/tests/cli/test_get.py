"""`stampede get` writes what the read service answers, or says in one line why it does not."""

import csv
import gzip
import io
import json
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from socket import SHUT_RDWR, create_connection, create_server, socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from typer.testing import CliRunner, Result

from stampede.cli.download import Server
from stampede.cli.files import cutout_files
from stampede.cli.get import Place, get, recent, recent_lines
from stampede.cli.main import app
from stampede.config.settings import Settings
from stampede.errors import SetupError, StampedeError
from stampede.handlers import cutouts
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from tests.read.api.test_cone import CENTRE, sample
from tests.read.api.test_cone import store as store_points
from tests.support.alerts.fits_files import source
from tests.support.read.read_service import (
    BODY,
    BOTH,
    LSST_ALERT,
    LSST_OBJECT,
    ZTF_ALERT,
    ZTF_OBJECT,
    Reader,
    sample_store,
    serving,
)
from tests.support.store.damaged_store import ALERTS, damage, damage_image, store_of_three
from tests.support.store.stored_packets import store, ztf_with_images


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


def test_what_alerts_show_of_a_moving_object(run, read: Reader, tmp_path: Path) -> None:
    for format in ("csv", "json", "votable", "parquet"):
        out = tmp_path / format
        assert run("moving", "2011UW158", "--format", format, "--out", out).exit_code == 0
        assert out.read_bytes() == read(f"/v1/moving/2011_UW158?format={format}").data
    assert pq.read_table(tmp_path / "parquet")["alert_id"].to_pylist() == [11, 12, ZTF_ALERT]
    found = run("moving", "K11UF8W", "--magnitudes", "--survey", "lsst", "--band", "r,g")
    row, other = csv.DictReader(io.StringIO(found.stdout))
    assert (row["designation"], row["phase_angle"]) == (BODY, "12.5")
    assert float(row["mag"]) == pytest.approx(21.5144, abs=1e-4)
    assert other["alert_id"] == "12"
    assert run("moving", BODY, "--band", "z").stdout.count("\n") == 1


def test_light_curves_as_they_were_known(tmp_path: Path) -> None:
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path)
    store(settings, [ztf_with_images(number, 59_000.0 + number) for number in (1, 2)])
    store(settings, [ztf_with_images(3, 59_003.0)], first=2, functions=[cutouts])
    name = "ZTF18aaaaaaa"
    for read in serving(make_app(settings)):

        def run(*words: str, url: str = read.url, stdin: str | None = None) -> Result:
            return CliRunner().invoke(get, ["lightcurve", *words, "--url", url], input=stdin)

        one = run(name, "--asof", "59001.5")
        path = f"/v1/objects/{name}/lightcurve?format=csv"
        assert one.stdout_bytes == read(f"{path}&asof=59001.5").data != read(path).data
        many = run(name, "ZTF18nothere", "--asof", "59001.5")
        assert {row["alert_id"] for row in csv.DictReader(io.StringIO(many.stdout))} == {"1"}
        for words, stdin in ((("1", "2"), None), (("-",), "1\n2\n")):
            found = run(*words, "--asof", "alert", stdin=stdin)
            assert found.exit_code == 0, found.output
            rows = csv.DictReader(io.StringIO(found.stdout))
            assert {row["alert_id"] for row in rows} == {"1", "2"}
        lacking = run("3", "--asof", "alert", "--format", "parquet", "--out", f"{tmp_path}/rows")
        assert (lacking.exit_code, pq.read_table(tmp_path / "rows").num_rows) == (1, 0)
        assert "no packet of that time is kept" in lacking.stderr


def test_positions_in_a_file_are_matched(tmp_path: Path) -> None:
    places = [[CENTRE.ra, CENTRE.dec], [200.0, 60.0], [CENTRE.ra, CENTRE.dec + 0.9]]
    lines = (f"{number},{ra},{dec}" for number, (ra, dec) in enumerate(places))
    (tmp_path / "a.csv").write_text("\n".join(["name,RA,Dec", *lines]))
    columns = dict(zip(("raj2000", "dej2000"), zip(*places, strict=True), strict=True))
    pq.write_table(pa.table(columns), tmp_path / "b")
    for read in serving(make_app(Settings(), store_points(sample()))):
        body = json.dumps({"positions": places}).encode()
        sent = read("/v1/cone?radius=30&format=csv", "POST", body).data

        def run(*words: object, url: str = read.url) -> Result:
            return CliRunner().invoke(get, ["match", *map(str, words), "--url", url])

        for name in ("a.csv", "b"):
            assert run(tmp_path / name, "--radius", 30).stdout_bytes == sent
        out = tmp_path / "rows.parquet"
        words = ("--radius", "0.5arcmin", "--format", "parquet", "--out", out)
        assert run(tmp_path / "b", *words).exit_code == 0
    found = pq.read_table(out).select(["position", "object_id", "detections"]).to_pylist()
    assert [tuple(each.values()) for each in found] == [
        (0, "ZTF21near", 2),
        (0, "ZTF21next", 1),
        (2, "ZTF21far", 1),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id,dec\n1,2\n", "has no column 'ra' (or ra_deg, raj2000, ra_icrs): id, dec"),
        ("ra,dec\n1,2\n3,\n", "row 2 is not on the sky: 3.0, nan"),
        ("ra,dec\n400,2\n", "row 1 is not on the sky: 400.0, 2.0"),
        ("ra,dec\n00:03:15.4,2\n", "the column 'ra' is not in degrees, as numbers"),
        ("ra,dec\n", "has no position"),
        ("ra,dec\n" + "1,2\n" * 100_001, "has 100,001 positions, and a request takes 100,000"),
        ("PAR1", "cannot be read: "),
        ("", "cannot be read: "),
        ("ra,ra,dec\n1,2,3\n", "cannot be read: "),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_without_positions_is_named_with_its_fault(
    run, tmp_path: Path, text: str | None, why: str
) -> None:
    file = tmp_path / "positions"
    if text is not None:
        file.write_text(text)
    error = run("match", file).exception
    assert isinstance(error, SetupError)
    assert str(file) in error.message
    assert why in error.message


def test_text_on_stdout_ends_its_line_and_a_file_has_the_bytes_of_the_server(
    run, read: Reader, tmp_path: Path
) -> None:
    for format in ("csv", "json", "votable"):
        words = ("lightcurve", ZTF_OBJECT, "--format", format)
        sent = read(f"/v1/objects/{ZTF_OBJECT}/lightcurve?format={format}").data
        assert run(*words).stdout_bytes == sent.removesuffix(b"\n") + b"\n"
        run(*words, "--out", tmp_path / format)
        assert (tmp_path / format).read_bytes() == sent


def test_on_a_terminal_recent_is_a_table(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.TextIOWrapper(io.BytesIO(), write_through=True)
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    recent.__wrapped__(Place(read.url), 3, as_json=False)
    head, *rows = screen.buffer.getvalue().decode().splitlines()
    assert head.split("  ")[0] == "alert"
    assert len(rows) == 3
    (row,) = [each for each in rows if str(ZTF_ALERT) in each]
    # MJD 59400 is TAI, 37 s before this in UTC
    assert row.split() == [str(ZTF_ALERT), "ztf", ZTF_OBJECT, "2021-07-04", "23:59:23", "r"]


def test_no_alert_is_a_sentence() -> None:
    assert [*recent_lines([])] == ["no alert is stored yet"]


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
    assert not [*tmp_path.iterdir()]
    half = tmp_path / f"{ZTF_ALERT}.partial"  # as if the program was killed here
    half.mkdir()
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
    progress = ["2 of 3 alerts", "3 of 3 alerts", f"2 files in {tmp_path}/; 1 alert there before"]
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
    """A server whose connection breaks after so many bytes of a response of another one."""

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
    sent = read("/v1/cone?ra=10&dec=-5&radius=60&format=json").data
    for words in (["10", "-5"], ["10", "-5.0"], ["00", "40", "00", "-05", "00", "00"]):
        apart = run("cone", *words, "--radius", "60", "--format", "json")
        assert json.loads(apart.stdout)["objects"] == json.loads(sent)["objects"]
    assert found.stdout_bytes == sent + b"\n"
    assert run("packet", ZTF_ALERT, "--out", tmp_path / "p").exit_code == 0
    assert (tmp_path / "p").read_bytes() == read(f"/v1/alerts/{ZTF_ALERT}/packet").data
    for format in ("ocf", "json", "fits"):
        out = tmp_path / format
        assert run("packet", ZTF_ALERT, "--format", format, "--out", out).exit_code == 0
        path = f"/v1/alerts/{ZTF_ALERT}/packet?format={format}"
        assert out.read_bytes() == read(path).data, format
    assert json.loads(run("schema", ZTF_ALERT).stdout)["name"] == "ztf.alert.alert"
    latest = run("recent", "--limit", 3)
    assert len(json.loads(latest.stdout)["alerts"]) == 3
    assert latest.stdout.endswith("}\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("lightcurve", "ZTF18nothere"), "ZTF18nothere"),
        (("lightcurve", "a!b"), "not an object id"),
        (("moving", "C/1995 O1 (Hale-Bopp)"), "no alert of the body 'C/1995 O1' is stored"),
        (("moving", " "), "say which body"),
        (("moving", BODY, "--band", "x"), "must be one or more of u, g, r"),
        (("cone", "here"), "'here' is no position: give"),
        (("cone", "10", "-5", "--within", "5"), "'10 -5 --within 5' is no position: give"),
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
        assert "may lack something: 1 damaged object" in found.stderr
        assert ZTF_OBJECT in found.stdout


@pytest.fixture
def damaged() -> MemoryObjects:
    """A store in which A's run of light curves, and the places of its cutouts, are damaged."""
    objects = store_of_three()
    damage(objects, DETECTIONS, 0)
    damage(objects, CUTOUTS, 0)
    return objects


def test_csv_that_meets_damage_is_an_error_that_leaves_no_file(
    damaged: MemoryObjects, tmp_path: Path
) -> None:
    for read in serving(make_app(Settings(), damaged)):
        for _ in range(2):
            words = ["lightcurve", *"ABC", "--out", str(tmp_path / "rows"), "--url", read.url]
            found = CliRunner().invoke(get, words)
            assert found.exit_code == 1
            assert "broke off" in found.stderr
            assert "--format parquet" in found.stderr
            assert not [*tmp_path.iterdir()]


def test_parquet_that_meets_damage_exits_with_1(damaged: MemoryObjects, tmp_path: Path) -> None:
    out = tmp_path / "rows"
    words = ["lightcurve", *"ABC", "--format", "parquet"]
    for read in serving(make_app(Settings(), damaged)):
        found = CliRunner().invoke(get, [*words, "--url", read.url, "--out", str(out)])
        assert found.exit_code == 1
        assert "may lack something: 1 damaged object of the table detections" in found.stderr
        assert pq.read_table(out)["object_id"].to_pylist() == ["A", "B", "C"]
        piped = CliRunner().invoke(get, [*words, "--url", read.url])
        assert (piped.exit_code, piped.stdout_bytes) == (1, out.read_bytes())
        # Damage of the table that these objects do not need: the end says more than the header.
        words[1:4] = "BC"
        assert CliRunner().invoke(get, [*words, "--url", read.url]).exit_code == 0


def test_an_alert_that_is_unreadable_is_asked_for_again(
    damaged: MemoryObjects, tmp_path: Path
) -> None:
    for read in serving(make_app(Settings(), damaged)):
        for times in range(2):
            words = ["cutouts", *map(str, ALERTS.values()), "404", "--out", str(tmp_path)]
            found = CliRunner().invoke(get, [*words, "--url", read.url])
            assert found.exit_code == 1
            assert "unreadable alerts: 11" in found.stderr
            assert "unknown alerts: 404" in found.stderr
            assert "1 damaged object of the table cutouts" in found.stderr
            assert {path.name for path in tmp_path.iterdir()} == {"12", "13"}
            assert ("2 alerts there before" in found.stderr) == bool(times)


def test_an_alert_with_a_damaged_image_is_asked_for_again(tmp_path: Path) -> None:
    objects = store_of_three()
    pack, before = damage_image(objects, 11, "template")
    words = ["cutouts", "11", "12", "--out", str(tmp_path)]
    for read in serving(make_app(Settings(), objects)):
        for _ in range(2):
            found = CliRunner().invoke(get, [*words, "--url", read.url])
            assert (found.exit_code, "damaged: 11/template" in found.stderr) == (1, True)
            assert {path.name for path in tmp_path.iterdir()} == {"12"}
        told = f"0 files in {tmp_path}/; 1 alert there before"  # a line of a log may precede it
        assert any(line.startswith(told) for line in found.stderr.splitlines())
        objects.put(pack, before)
        assert CliRunner().invoke(get, [*words, "--url", read.url]).exit_code == 0
    assert len(files_in(tmp_path)) == 6


def member(name: str, data: bytes = b"data", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    info.size = len(data) if info.isreg() else 0
    return info, data


END = member("missing.json", b'{"unknown_alerts": []}')
GOOD = member("11/science.fits.gz", mode=0o4755)
HOSTILE = {
    "a file beside the alerts": [member(".ssh/authorized_keys")],
    "a file of another folder": [member(".git/hooks/post-checkout", mode=0o755)],
    "an alert that was not asked for": [member("13/science.fits.gz")],
    "no image": [member("11/.bashrc")],
    "deeper": [member("11/a/b/c/science.fits.gz")],
    "upwards": [member("../11/science.fits.gz")],
    "upwards inside": [member("11/../science.fits.gz")],
    "an absolute path": [member("/11/science.fits.gz")],
    "a link": [member("11/science.fits.gz", type=tarfile.SYMTYPE, linkname="/etc/passwd")],
    "a hard link": [member("11/science.fits.gz", type=tarfile.LNKTYPE, linkname="none")],
    "a device": [member("11/science.fits.gz", type=tarfile.CHRTYPE)],
    "a folder": [member("11", type=tarfile.DIRTYPE)],
    "an end that is a folder": [member("missing.json", type=tarfile.DIRTYPE)],
    "an end that is no JSON": [member("missing.json", b"{")],
    "an end that is a list": [member("missing.json", b"[1]")],
    "an end with other values": [member("missing.json", b'{"gone": 5}')],
    "no end": [],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_only_images_that_were_asked_for_are_written(members: list, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "victim").write_text("mine")
    ended = any(info.name == "missing.json" for info, _ in members)
    with answering([GOOD, *members, *([] if ended or not members else [END])]) as url:
        out.mkdir()
        error = CliRunner().invoke(get, ["cutouts", "11", "12", "--out", str(out), "--url", url])
    assert isinstance(error.exception, StampedeError), error.output
    assert "\n" not in error.exception.message
    assert not [*out.iterdir()]
    assert {path.name for path in tmp_path.iterdir()} == {"out", "victim"}


def test_a_file_has_the_mode_of_a_new_one(tmp_path: Path) -> None:
    with answering([GOOD, END]) as url:
        words = ["cutouts", "11", "--out", str(tmp_path / "out"), "--url", url]
        assert CliRunner().invoke(get, words).exit_code == 0
    (tmp_path / "new").touch()
    file = tmp_path / "out" / "11" / "science.fits.gz"
    assert file.read_bytes() == b"data"
    assert file.stat().st_mode == (tmp_path / "new").stat().st_mode


@contextmanager
def answering(members: list[tuple[tarfile.TarInfo, bytes]]) -> Iterator[str]:
    """A server that responses everything with this tar."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))

    async def answer(request: Request) -> Response:
        return Response(body.getvalue(), media_type="application/x-tar")

    app = Starlette(routes=[Route("/v1/cutouts", answer, methods=["POST"])])
    config = uvicorn.Config(app, port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def test_an_id_that_is_no_number_deletes_no_folder(tmp_path: Path) -> None:
    """It may be a path: ids come from a file."""

    class Down:
        def answer(self, *_: object) -> None:
            raise StampedeError("down")

    other, here = tmp_path / "other.partial", tmp_path / "here"
    other.mkdir()
    here.mkdir()
    with pytest.raises(StampedeError, match="down"):
        cutout_files.fetch(Down(), ["../other"], here)  # type: ignore[arg-type]
    assert other.is_dir()


def test_mcp_says_what_to_install() -> None:
    """The tests of the client's server run it where its package is."""
    if find_spec("mcp"):
        pytest.skip("the package mcp is installed")
    got = CliRunner().invoke(app, ["mcp", "--url", "http://127.0.0.1:1"])
    assert isinstance(got.exception, SetupError)
    assert "pip install 'stampede-client[mcp]'" in got.exception.message
