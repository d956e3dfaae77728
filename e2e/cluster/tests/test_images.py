"""Images: names, archives, and that nothing is built or loaded twice."""

import json
import os
import tarfile
from pathlib import Path

import pytest

from e2e.cluster import Failed
from e2e.cluster.built import images
from e2e.cluster.places import REGISTRY


def test_each_program_has_an_image_of_its_own() -> None:
    names = images.image_names()
    assert len(set(names)) == len(names)
    assert len({images.archive_path(name) for name in names}) == len(names)
    for name in names:
        image, _, tag = name.removeprefix(f"{REGISTRY}/").partition(":")
        assert image.replace("-", "").isalnum(), name
        assert tag, name


def test_an_image_holds_only_its_program(place: Path) -> None:
    name = f"{REGISTRY}/probe:v1"
    contents = []
    for content in (b"#!/bin/one", b"#!/bin/one", b"#!/bin/two"):
        (place / "program").write_bytes(content)
        images.write_program_image(place / "program", name)
        contents.append(images.name_and_digest(images.archive_path(name)))
    assert contents[0] == contents[1] != contents[2]
    assert contents[0][0] == name
    with tarfile.open(images.archive_path(name)) as archive:
        config_file = archive.extractfile(contents[2][1])
        assert config_file is not None
        config = json.load(config_file)
        (layer,) = (each for each in archive.getnames() if each.endswith("layer.tar"))
        with tarfile.open(fileobj=archive.extractfile(layer)) as files:
            (app,) = files.getmembers()
    assert (app.name, app.mode & 0o777, app.size) == ("app", 0o755, 10)
    assert config["config"]["Entrypoint"] == ["/app"]
    assert config["config"]["User"].partition(":")[0].isnumeric()
    assert list(place.glob(f"{images._SCRATCH_PREFIX}*")) == []


def test_an_ordinary_user_makes_the_same_image_as_root(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{REGISTRY}/probe:v1"
    made = []
    for uid in (0, 1000):
        (place / "program").write_bytes(b"#!/bin/one")
        if os.geteuid() == 0:
            os.chown(place / "program", uid, uid)
        with monkeypatch.context() as as_user:
            as_user.setattr(os, "geteuid", lambda uid=uid: uid)
            images.write_program_image(place / "program", name)
        made.append(images.archive_path(name).read_bytes())
    assert made[0] == made[1]


def test_an_image_is_loaded_again_only_when_it_has_changed(place: Path) -> None:
    loaded: list[bytes] = []
    name = f"{REGISTRY}/probe:v1"
    for content in (b"one", b"one", b"two"):
        (place / "program").write_bytes(content)
        images.write_program_image(place / "program", name)

        def load(_: Path, content: bytes = content) -> None:
            loaded.append(content)

        images.load_missing([images.archive_path(name)], place / "loaded.json", load)
    assert loaded == [b"one", b"two"]


def test_an_image_that_could_not_be_loaded_is_tried_again(place: Path) -> None:
    (place / "program").write_bytes(b"one")
    images.write_program_image(place / "program", name := f"{REGISTRY}/probe:v1")

    def refuse(archive: Path) -> None:
        raise Failed(f"no room for {archive.name}")

    for _ in range(2):
        with pytest.raises(Failed, match=r"no room for probe-v1\.tar"):
            images.load_missing([images.archive_path(name)], place / "loaded.json", refuse)
