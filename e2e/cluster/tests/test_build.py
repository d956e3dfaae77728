"""What is built: names, archives, and that nothing is built that is there."""

import json
import tarfile
from pathlib import Path

import pytest

from e2e.cluster import build
from e2e.cluster.places import REGISTRY


def test_versions_are_those_of_the_modules() -> None:
    assert build.pinned("k8s.io/kubernetes").startswith("v1.34.")
    assert build.SERVING.image("queue").endswith(f":{build.pinned('knative.dev/serving')}")
    with pytest.raises(AssertionError, match="does not pin"):
        build.pinned("k8s.io/nothing")


def test_each_program_has_an_image_of_its_own() -> None:
    names = build.image_names()
    assert len(set(names)) == len(names)
    assert len({build.archive(name) for name in names}) == len(names)
    for name in names:
        image, _, tag = name.removeprefix(f"{REGISTRY}/").partition(":")
        assert image.replace("-", "").isalnum(), name
        assert tag, name


def test_an_image_holds_a_program_alone(place: Path) -> None:
    name = f"{REGISTRY}/probe:v1"
    contents = []
    for content in (b"#!/bin/one", b"#!/bin/one", b"#!/bin/two"):
        (place / "program").write_bytes(content)
        build._image(place / "program", name)
        contents.append(build.identity(build.archive(name)))
    assert contents[0] == contents[1] != contents[2]
    assert contents[0][0] == name
    with tarfile.open(build.archive(name)) as archive:
        config = json.load(archive.extractfile(contents[2][1]))
        (layer,) = (each for each in archive.getnames() if each.endswith("layer.tar"))
        with tarfile.open(fileobj=archive.extractfile(layer)) as files:
            (app,) = files.getmembers()
    assert (app.name, app.mode & 0o777, app.size) == ("app", 0o755, 10)
    assert config["config"]["Entrypoint"] == ["/app"]
    assert config["config"]["User"].partition(":")[0].isnumeric()
    assert list(place.glob(f"{build._MAKING}*")) == []


def test_the_pause_program_is_built_and_found_again(place: Path) -> None:
    build._go(["./pause"], place / "pause")
    assert (place / "pause").stat().st_mode & 0o100
    assert list(place.glob("*.partial")) == []


def test_a_program_that_does_not_build_says_why(place: Path) -> None:
    with pytest.raises(build.Failed, match=r"(?s)directory not found.*\nGo 1.25 or later"):
        build._go(["./nothing"], place / "wrong")
    assert not (place / "wrong").exists()


def test_an_image_is_given_once_and_again_when_it_is_another(place: Path) -> None:
    given: list[bytes] = []
    name = f"{REGISTRY}/probe:v1"
    for content in (b"one", b"one", b"two"):
        (place / "program").write_bytes(content)
        build._image(place / "program", name)
        build.load([build.archive(name)], place / "known", lambda _, now=content: given.append(now))
    assert given == [b"one", b"two"]


def test_an_image_that_could_not_be_given_is_tried_again(place: Path) -> None:
    (place / "program").write_bytes(b"one")
    build._image(place / "program", name := f"{REGISTRY}/probe:v1")

    def refuse(archive: Path) -> None:
        raise build.Failed(f"no room for {archive.name}")

    for _ in range(2):
        with pytest.raises(build.Failed, match=r"no room for probe-v1\.tar"):
            build.load([build.archive(name)], place / "known", refuse)
