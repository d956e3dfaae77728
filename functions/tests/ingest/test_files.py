"""Alerts from disk, in every kind of file and archive."""

import gzip
import io
import os
import socket
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from stampede.errors import SetupError
from stampede.ingest import files
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_batch_decoder

ALERTS = [made_alerts.confluent(made_alerts.rubin_record(1101, seed), 1101) for seed in range(3)]
ALERTS += [made_alerts.ztf_alert(candid) for candid in range(1, 4)]
Mode = Literal["w", "w:gz", "w:bz2", "w:xz"]


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


def tar(path: Path, mode: Mode = "w", name: str = "night.tar", inner: bool = False) -> Path:
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


def zipped(path: Path) -> Path:
    with zipfile.ZipFile(path / "night.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("night")
        for number, alert in enumerate(ALERTS):
            archive.writestr(f"night/{number}.avro", alert)
    return path / "night.zip"


def within_each_other(path: Path) -> Path:
    """A tar of a gzipped tar of a zip."""
    (path / "inner").mkdir()
    zipped(path / "inner")
    with tarfile.open(path / "a.tar.gz", "w:gz") as archive:
        archive.add(path / "inner", "inner")
    with tarfile.open(path / "b.tar", "w") as archive:
        archive.add(path / "a.tar.gz", "a.tar.gz")
    return path / "b.tar"


def contents(*paths: Path) -> list[bytes]:
    found = list(files.read(files.find(paths)))
    assert [alert.fault for alert in found] == [None] * len(found)
    return [alert.data for alert in found]


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
        lambda path: tar(path, "w:bz2", "night.tar.bz2"),
        lambda path: tar(path, "w:xz", "night.txz"),
        lambda path: tar(path, "w:gz", "named wrongly.tar"),
        zipped,
        lambda path: zipped(path).parent,
        within_each_other,
    ],
    ids=[
        *("folder", "avro.gz", "tar", "tar.gz", "tgz", "avro.gz in a tar", "a tar in a folder"),
        *("tar.bz2", "txz", "a tar.gz named tar", "zip", "a zip in a folder", "archives in a tar"),
    ],
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


def test_names_say_where_an_alert_is(tmp_path: Path) -> None:
    (found, *_) = files.read([within_each_other(tmp_path)])
    assert found.name == f"{tmp_path}/b.tar:a.tar.gz:inner/night.zip:night/0.avro"


def test_other_files_of_a_folder_are_left_out_and_named(tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    (folder / "a link").symlink_to(folder / "README.md")
    assert files.left_out([folder]) == ([folder / "README.md", folder / "a link"], [])
    assert files.left_out([folder / "README.md"]) == ([], [])


def test_what_is_no_file_in_a_folder_is_left_out_and_named(tmp_path: Path) -> None:
    """A link may lead anywhere, and a FIFO makes its reader wait."""
    folder = in_folder(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.avro").write_bytes(ALERTS[0])
    (folder / "deep" / "folder").symlink_to(tmp_path / "elsewhere")
    (folder / "back").symlink_to(folder)
    (folder / "link.avro").symlink_to(tmp_path / "elsewhere" / "secret.avro")
    (folder / "broken.avro").symlink_to(tmp_path / "gone")
    os.mkfifo(folder / "stream.avro")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket.tar"))
        assert contents(folder) == ALERTS
        names = ["back", "broken.avro", "deep/folder", "link.avro", "socket.tar", "stream.avro"]
        assert files.left_out([folder]).no_files == [folder / name for name in names]


def test_a_link_that_is_named_is_followed(tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "one.avro").symlink_to(folder / "0.avro")
    assert contents(tmp_path / "link", tmp_path / "one.avro") == [*ALERTS, ALERTS[0]]


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
    """Each decodes like the same alert in a container of its own, and is the same version of it."""
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


def test_what_is_no_file_in_a_tar_is_a_fault(tmp_path: Path) -> None:
    """A hard link is not: its bytes are those of another member."""
    path = tar(tmp_path)
    kinds = [tarfile.SYMTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.LNKTYPE]
    with tarfile.open(path, "a", format=tarfile.USTAR_FORMAT) as archive:
        for number, kind in enumerate(kinds):
            member = tarfile.TarInfo(f"{number}.avro")
            member.type, member.linkname = kind, "night/0.avro"
            archive.addfile(member)
    *good, one, two, three, four = files.read([path])
    assert [each.data for each in good] == ALERTS
    for number, each in enumerate((one, two, three, four)):
        assert each.fault == f"{path}:{number}.avro is a link, a device or a pipe, and no file"


def test_an_empty_container_holds_no_alert(tmp_path: Path) -> None:
    path = tmp_path / "none.avro"
    path.write_bytes(made_alerts.contained([], made_alerts.ztf_schema()))
    assert contents(path) == []


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


def test_a_file_that_cannot_be_looked_at_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a folder that may be listed and not entered."""

    def lstat(path: Path) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    folder = in_folder(tmp_path)
    monkeypatch.setattr(Path, "lstat", lstat)
    with pytest.raises(SetupError, match="cannot be read: Permission denied"):
        files.find([folder])
