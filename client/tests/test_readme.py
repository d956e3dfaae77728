"""The README's Python code, run as one script."""

import json
import os
import re
from pathlib import Path

import pytest

from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.support.read.read_service import ZTF_ALERT, ZTF_OBJECT, fill, sample_points

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.filterwarnings("ignore::stampede_client.MissingWarning")  # no packet of ALERT is kept
def test_every_block_runs(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_up(tmp_path, url, monkeypatch)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    code = "\n".join(blocks).replace("http://127.0.0.1:8080", url)
    exec(compile(code, "README.md", "exec"), {"ALERT": ZTF_ALERT, "OBJECT": ZTF_OBJECT})
    printed = capsys.readouterr().out
    assert "nJy" in printed
    assert "('science', 'template', 'difference') (63, 63) adu" in printed
    assert "\n1 0 []\nZTF21abiuvdk 4\n" in printed
    assert printed.endswith("\n4\n")


def run_up(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a `stampede up` leaves while it runs, with the sample's light curves in a directory."""
    fill(DirectoryObjects(folder / "bucket"), [], sample_points(), Coverage.of({}))
    up = {"pid": os.getpid(), "urls": {"read": url}, "store": f"file://{folder}/bucket"}
    (folder / "stampede").mkdir()
    (folder / "stampede" / "up.json").write_text(json.dumps(up))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    monkeypatch.delenv("STAMPEDE_DATA", raising=False)


def test_the_client_never_imports_the_server() -> None:
    package = Path(__file__).parents[1] / "stampede_client"
    modules = [*package.glob("*.py")]
    assert len(modules) > 5
    for module in modules:
        imported = re.findall(r"^\s*(?:from|import) (stampede\w*)", module.read_text(), re.M)
        assert set(imported) <= {"stampede_client"}, module
