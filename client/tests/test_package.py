"""The client's package: what `pip install ./client` does, and what it says of itself."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[1]


def test_its_page_has_no_link_that_only_the_source_has() -> None:
    """The page is shown where the package is, without the rest of the source."""
    links = re.findall(r"\]\(([^)]*)\)", (CLIENT / "README.md").read_text())
    assert [link for link in links if not link.startswith(("#", "https://"))] == []


def test_it_says_whose_it_is_and_what_for() -> None:
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
    assert project["authors"] == [{"name": "The Stampede authors"}]
    assert "Topic :: Scientific/Engineering :: Astronomy" in project["classifiers"]
    assert project["keywords"]


@pytest.mark.integration  # pip fetches the build backend
def test_building_it_writes_nothing_into_the_source(tmp_path: Path) -> None:
    source = tmp_path / "client"
    left_out = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(CLIENT, source, ignore=left_out)
    before = {path: path.stat().st_mtime_ns for path in source.rglob("*")}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run(
        [*command, "--wheel-dir", str(tmp_path), str(source)], check=True, capture_output=True
    )
    assert {path: path.stat().st_mtime_ns for path in source.rglob("*")} == before
    (wheel,) = tmp_path.glob("stampede_client-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (metadata,) = [name for name in names if name.endswith("/METADATA")]
        said = message_from_bytes(packed.read(metadata))
    modules = {f"stampede_client/{path.name}" for path in (CLIENT / "stampede_client").glob("*.*")}
    assert modules == {name for name in names if name.startswith("stampede_client/")}
    assert "stampede_client/py.typed" in modules
    assert (said["Name"], said["Author"]) == ("stampede-client", "The Stampede authors")
    assert said["License-Expression"] == "Apache-2.0"
    assert "Polars" in str(said.get_payload())
