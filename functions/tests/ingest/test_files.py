"""Alerts from disk, in every kind of file and archive."""

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stampede.errors import SetupError
from stampede.ingest import files
from tests.support import made_alerts
from tests.support.batch_decoders import make_batch_decoder

ALERTS = [made_alerts.confluent(made_alerts.rubin_record(1101, seed), 1101) for seed in range(3)]
ALERTS += [made_alerts.ztf_alert(candid) for candid in range(1, 4)]


def in_folder(path: Path) -> Path:
    (path / "night" / "deep").mkdir(parents=True)
    for number, alert in enumerate(ALERTS):
        (path / "night" / f"{number}.avro").write_bytes(alert)
    (path / "night" / "README.md").write_text("no alert")
    return path / "night"


def gzipped(path: Path) -> Path:
    for number, alert in enumerate(ALERTS):
        (path / f"{number}.avro.gz").write_bytes(gzip.compress(alert))
    return path


def tar(path: Path, mode: str = "w", name: str = "night.tar", inner: bool = False) -> Path:
    # USTAR has the members' headers in known places.
    with tarfile.open(path / name, mode, format=tarfile.USTAR_FORMAT) as archive:
        folder = tarfile.TarInfo("night")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for number, alert in enumerate(ALERTS):
            data = gzip.compress(alert) if inner else alert
            info = tarfile.TarInfo(f"night/{number}.avro{'.gz' if inner else ''}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path / name


def contents(*paths: Path) -> list[bytes]:
    return [alert.data for alert in files.read(files.find(paths))]


@pytest.mark.parametrize(
    "wrap",
    [
        in_folder,
        gzipped,
        tar,
        lambda path: tar(path, "w:gz", "night.tar.gz"),
        lambda path: tar(path, "w:gz", "night.tgz"),
        lambda path: tar(path, inner=True),
        lambda path: tar(path).parent,
    ],
    ids=["folder", "avro.gz", "tar", "tar.gz", "tgz", "avro.gz in a tar", "a tar in a folder"],
)
def test_every_wrapping_gives_the_same_alerts(tmp_path: Path, wrap: Callable) -> None:
    assert contents(wrap(tmp_path)) == ALERTS


def test_several_paths_in_order(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = tar(tmp_path / "a"), in_folder(tmp_path / "b")
    assert contents(two, one) == ALERTS + ALERTS


def test_a_single_file_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "alert.bin").write_bytes(ALERTS[0])
    assert contents(tmp_path / "alert.bin") == ALERTS[:1]


def test_a_path_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no-such: there is no such file or folder"):
        files.find([tmp_path / "no-such"])
    with pytest.raises(SetupError, match=r"no alerts in .*: looked for files that end in \.avro,"):
        files.find([tmp_path])
    os.mkfifo(tmp_path / "stream")
    with pytest.raises(SetupError, match="stream is neither a file nor a folder"):
        files.find([tmp_path / "stream"])


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_a_container_of_many_becomes_containers_of_one(tmp_path: Path, codec: str) -> None:
    """Each decodes like the same alert in a container of its own."""
    records = [made_alerts.ztf_record(candid) for candid in range(1, 40)]
    path = tmp_path / "many.avro"
    path.write_bytes(made_alerts.contained(records, made_alerts.ztf_schema(), codec))
    found = list(files.read([path]))
    assert len({each.name for each in found}) == len(found) == 39
    reader = make_batch_decoder(tmp_path)
    for read in (reader.cutouts, reader.detections):
        split = read([each.data for each in found])
        single = read([made_alerts.ztf_alert(candid) for candid in range(1, 40)])
        assert split.faults == [None] * 39
        assert split.rows == single.rows


def test_an_empty_container_holds_no_alert(tmp_path: Path) -> None:
    path = tmp_path / "none.avro"
    path.write_bytes(made_alerts.contained([], made_alerts.ztf_schema()))
    assert contents(path) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:30] + bytes(30) + data[60:],
        lambda data: b"",
        lambda data: b"not an alert",
    ],
    ids=["cut", "end", "middle", "empty", "other"],
)
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_damaged_file_is_read_unchanged(tmp_path: Path, damage: Callable, codec: str) -> None:
    """It is not skipped: the function that receives it says what is wrong."""
    records = [made_alerts.ztf_record(candid) for candid in range(1, 4)]
    path = tmp_path / "damaged.avro"
    path.write_bytes(damage(made_alerts.contained(records, made_alerts.ztf_schema(), codec)))
    (tmp_path / "good.avro").write_bytes(ALERTS[0])
    assert contents(path, tmp_path / "good.avro") == [path.read_bytes(), ALERTS[0]]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-20],
        lambda data: data[:50] + b"\xff" * 9 + data[59:],
        lambda _: b"\x1f\x8b",
    ],
    ids=["cut", "middle", "magic alone"],
)
def test_damaged_gzip_is_read_unchanged(tmp_path: Path, damage: Callable) -> None:
    data = damage(gzip.compress(ALERTS[0]))
    (tmp_path / "damaged.avro.gz").write_bytes(data)
    with tarfile.open(tmp_path / "night.tar", "w") as archive:
        archive.add(tmp_path / "damaged.avro.gz")
    assert contents(tmp_path / "damaged.avro.gz", tmp_path / "night.tar") == [data, data]


def spoilt(data: bytes, at: int) -> bytes:
    return data[:at] + b"\xff" * 8 + data[at + 8 :]


def second_header(data: bytes) -> int:
    return data.index(b"night/1.avro")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[: second_header(data)],
        lambda data: data[: second_header(data) + 100],
        lambda data: spoilt(data, second_header(data)),
        lambda data: b"",
        lambda data: b"no tar",
    ],
    ids=["cut", "cut between members", "cut in a header", "header", "empty", "other"],
)
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["tar", "tar.gz"])
def test_a_damaged_tar_is_an_error_after_what_could_be_read(
    tmp_path: Path, damage: Callable, compress: Callable
) -> None:
    """Reading never ends early in silence: nothing would show that alerts are missing."""
    path = tar(tmp_path)
    path.write_bytes(compress(damage(path.read_bytes())))
    found: list[files.FileAlert] = []
    with pytest.raises(SetupError, match=r"night\.tar cannot be read to its end"):
        found.extend(files.read([path]))
    assert [alert.data for alert in found] == ALERTS[: len(found)]


@pytest.mark.parametrize("at", [0.2, 0.5, 0.9])
def test_a_damaged_gzipped_tar_is_an_error(tmp_path: Path, at: float) -> None:
    path = tar(tmp_path, "w:gz", "night.tar.gz")
    data = path.read_bytes()
    for damaged in (spoilt(data, int(at * len(data))), data[: int(at * len(data))]):
        path.write_bytes(damaged)
        with pytest.raises(SetupError, match="cannot be read to its end"):
            list(files.read([path]))


def test_the_members_of_a_tar_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = []

    class CountedTar(tarfile.TarFile):
        def next(self):
            most.append(len(self.members))
            return super().next()

    monkeypatch.setattr(tarfile, "TarFile", CountedTar)
    monkeypatch.setattr(tarfile, "open", CountedTar.open)
    assert contents(tar(tmp_path)) == ALERTS
    assert max(most) <= 1
