"""The `stampede up` of this machine, as it says in its up.json how to reach it."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs

import stampede_client
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.support.read.read_service import ZTF_OBJECT, fill, sample_cutouts, sample_points

NO_PROCESS = 2**22 + 1  # more than a pid can be
Up = Callable[..., Path]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("STAMPEDE_DATA", raising=False)
    return tmp_path / "stampede"


@pytest.fixture
def up(home: Path, url: str) -> Up:
    """Writes what a `stampede up` leaves while it runs with its data in `folder`."""

    def write(folder: Path, store: str = "file:///nowhere", **more: object) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        running = {"pid": os.getpid(), "urls": {"read": url}, "store": store, **more}
        (folder / "up.json").write_text(json.dumps(running))
        if folder != home:
            (home / "others").mkdir(parents=True, exist_ok=True)
            (home / "others" / folder.name).write_text(str(folder))
        return folder

    return write


def test_one_call_gives_server_and_bucket(up: Up, home: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill(DirectoryObjects(store), sample_cutouts(), sample_points(), Coverage.of({("ztf", 0): [1]}))
    (store / "alerts" / "ztf" / "4.02").mkdir(parents=True)
    up(home, f"file://{store}")
    with stampede_client.local() as here:
        assert len(here.lightcurve(ZTF_OBJECT)) == 4
    assert here.bucket.detections().arrow([ZTF_OBJECT]).num_rows == 4
    assert here.bucket.images(ids=[1]).missing == [1]
    assert here.bucket.folders("alerts/ztf/") == [f"{store}/alerts/ztf/4.02"]
    assert here.bucket.folders("alerts/none") == []
    assert here.bucket.storage_options is None


def test_an_endpoint_with_its_keys_which_are_never_shown(up: Up, home: Path) -> None:
    up(home, "http://127.0.0.1:8401/sky", access_key="ACCESS", secret_key="open sesame", keys="")
    bucket = stampede_client.local().bucket
    assert bucket.path == "sky"
    assert isinstance(bucket.filesystem, fs.S3FileSystem)
    assert bucket.storage_options == {
        "aws_endpoint_url": "http://127.0.0.1:8401",
        "aws_access_key_id": "ACCESS",
        "aws_secret_access_key": "open sesame",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    assert "open sesame" not in repr(bucket)


def test_keys_that_are_files(up: Up, home: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    up(home, "https://store.test/sky", access_key="", secret_key="", keys=str(keys), region="x-1")
    with pytest.raises(stampede_client.BadInput, match=re.escape(f"the keys in {keys} cannot be")):
        stampede_client.local()
    keys.mkdir()
    (keys / "access-key").write_text("ACCESS\n")
    (keys / "secret-key").write_text("SECRET\n")
    options = stampede_client.local().bucket.storage_options
    assert options is not None
    assert (options["aws_access_key_id"], options["aws_region"]) == ("ACCESS", "x-1")
    assert options["aws_allow_http"] == "false"


def test_of_several_the_usual_one_or_the_one_that_is_named(
    up: Up, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = up(tmp_path / "a", "file:///a")
    assert stampede_client.local().bucket.url == "file:///a"
    assert capsys.readouterr().err == f"using the `stampede up` of {first}\n"
    up(tmp_path / "b", "file:///b")
    with pytest.raises(stampede_client.BadInput, match=r"several .*local\(data=...\): .*/a, .*/b"):
        stampede_client.local()
    up(home, "file:///usual")
    assert stampede_client.local().bucket.url == "file:///usual"
    assert stampede_client.local(tmp_path / "b").bucket.url == "file:///b"


def test_the_directory_of_the_environment_and_no_other(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up(tmp_path / "a", "file:///a")
    monkeypatch.setenv("STAMPEDE_DATA", str(tmp_path / "b"))
    with pytest.raises(stampede_client.BadInput, match=f"with its data in {tmp_path}/b"):
        stampede_client.local()


def test_one_that_ended_does_not_run(up: Up, home: Path) -> None:
    up(home, pid=NO_PROCESS)
    with pytest.raises(stampede_client.BadInput, match="no `stampede up` runs here: start it"):
        stampede_client.local()
