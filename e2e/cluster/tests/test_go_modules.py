"""Go modules: pinned versions, downloads and builds."""

import json
import subprocess
from pathlib import Path

import pytest

from e2e.cluster import Failed
from e2e.cluster.built import go_modules, images


def test_versions_are_those_of_the_modules() -> None:
    assert go_modules.pinned_version("k8s.io/kubernetes").startswith("v1.35.")
    serving = go_modules.pinned_version("knative.dev/serving")
    assert images.SERVING.image("queue").endswith(f":{serving}")
    with pytest.raises(AssertionError, match="does not pin"):
        go_modules.pinned_version("k8s.io/nothing")


def test_copied_sources_can_be_changed(place: Path) -> None:
    sources = place / "sources"
    (sources / "inner").mkdir(parents=True)
    (sources / "inner" / "file.go").write_text("package a")
    for path in (sources / "inner" / "file.go", sources / "inner", sources):
        path.chmod(0o555)
    go_modules.copy_sources(sources, place / "copy")
    assert (place / "copy" / "inner" / "file.go").read_text() == "package a"
    assert (place / "copy" / "inner").stat().st_mode & 0o200
    sources.chmod(0o755)
    (sources / "inner").chmod(0o755)


def test_the_pause_program_is_built_and_found_again(place: Path) -> None:
    go_modules.build(["./pause"], place / "pause")
    assert (place / "pause").stat().st_mode & 0o100
    assert list(place.glob("*.partial")) == []


def test_a_failed_build_shows_the_error_and_advice(place: Path) -> None:
    with pytest.raises(Failed, match=r"(?s)directory not found.*\nGo 1.25 or later"):
        go_modules.build(["./nothing"], place / "wrong")
    assert not (place / "wrong").exists()


def test_every_module_has_its_checksum() -> None:
    """A machine with an old cache of builds would not miss one; a new machine cannot build."""
    directory = go_modules.PROGRAMS_MODULE
    edit = subprocess.run(
        ["go", "mod", "edit", "-json"], cwd=directory, capture_output=True, check=True
    )
    modules = json.loads(edit.stdout)
    replaced = {each["Old"]["Path"] for each in modules["Replace"]}
    sums = (directory / "go.sum").read_text()
    missing = [
        each["Path"]
        for each in modules["Require"]
        if each["Path"] not in replaced and f"{each['Path']} {each['Version']} h1:" not in sums
    ]
    assert missing == ["github.com/Microsoft/hnslib"]  # which only Windows builds
