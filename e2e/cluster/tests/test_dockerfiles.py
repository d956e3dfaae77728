"""The Dockerfiles: one base, named by its digest, which tools/image can make too."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from e2e.places import ROOT

DOCKERFILES = (
    "functions/Dockerfile",
    "manifests/site/Dockerfile",
    "e2e/cluster/built/kind_node/Dockerfile",
    "e2e/cluster/built/kafka_data_plane_image/Dockerfile",
)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return lambda name: importlib.import_module(f"images.{name}")


def bases(read: Any, path: Path) -> set[str]:
    stages = read(path, {"STAMPEDE": "ours"})
    return {stage.parent for stage in stages} - {stage.name for stage in stages} - {"ours"}


def test_all_name_the_same_base_by_its_digest(tools: Any) -> None:
    found = [bases(tools("dockerfile").read, ROOT / path) for path in DOCKERFILES]
    (base,) = set().union(*found)
    assert tools("layers").debian_suite(base) == "bookworm"
    assert "@sha256:" in base


@pytest.mark.parametrize(
    "name",
    [
        "ubuntu:noble-slim",
        "debian:bookworm",
        "debian:bookworm-slim@sha256:7c7b2c96",
        "debian:bookworm-slim@sha512:" + "0" * 64,
        "debian:../x-slim",
    ],
)
def test_a_base_that_debootstrap_cannot_make_is_refused(tools: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"FROM {name}: without a registry"):
        tools("layers").debian_suite(name)


def test_a_tag_alone_is_a_base_too(tools: Any) -> None:
    assert tools("layers").debian_suite("debian:trixie-slim") == "trixie"
