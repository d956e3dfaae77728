"""Images built with Docker: when tools/image uses it, and that the archives hold no dates."""

import importlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.places import ROOT

BASE = "debian:bookworm-slim@sha256:" + "0" * 64
ANSWERS = "exit 0"
NO_DAEMON = "echo 'permission denied' >&2; exit 1"
HAS_THE_BASE = '[ "$1" != pull ]'
PULLS = '[ "$1" != image ]'
CANNOT_PULL = '[ "$1" = info ] || { echo "no such host" >&2; exit 1; }'


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return lambda name: importlib.import_module(f"images.{name}")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """A program `docker` in place of the real one, or none; and the present user."""

    def machine(script: str, uid: int) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        if script:
            (tmp_path / "docker").write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / "docker").chmod(0o755)

    return machine


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("script", [ANSWERS, HAS_THE_BASE, PULLS])
@pytest.mark.parametrize("wanted", [None, "docker"])
def test_docker_builds_for_any_user(
    tools: Any, machine: Any, wanted: str | None, script: str, uid: int
) -> None:
    machine(script, uid)
    assert tools("choice").choose(wanted, BASE) == "docker"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("", "there is no Docker"),
        (NO_DAEMON, "no Docker daemon answers: permission denied"),
        (CANNOT_PULL, f"Docker cannot pull {BASE}: no such host"),
    ],
    ids=["no docker", "no daemon", "cannot pull"],
)
def test_without_docker_root_builds_and_others_are_told_what_to_do(
    tools: Any, machine: Any, script: str, reason: str
) -> None:
    choose = tools("choice").choose
    machine(script, 0)
    assert choose(None, BASE) == "chroot"
    for uid in (0, 1000):
        machine(script, uid)
        with pytest.raises(RuntimeError, match=f"^{reason}$"):
            choose("docker", BASE)
    with pytest.raises(RuntimeError, match=rf"(?s)^{reason}\.\n.*apt-get install docker.*--groups"):
        choose(None, BASE)


def test_a_chroot_needs_root_and_no_docker(tools: Any, machine: Any) -> None:
    machine("exit 1", 0)
    assert tools("choice").choose("chroot", BASE) == "chroot"
    machine(ANSWERS, 1000)
    with pytest.raises(RuntimeError, match="--builder chroot needs root"):
        tools("choice").choose("chroot", BASE)


def write_saved(path: Path, date: int) -> None:
    """An archive as `docker save` writes it at a date."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, mode in (
            *(("opt", tarfile.DIRTYPE, 0o755), ("opt/a", tarfile.REGTYPE, 0o640)),
            *(("opt/b", tarfile.LNKTYPE, 0o640), ("opt/c", tarfile.SYMTYPE, 0o777)),
            ("opt/.wh.gone", tarfile.REGTYPE, 0o644),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.uid, info.gid = kind, mode, 3, 4
            info.linkname = {"opt/b": "opt/a", "opt/c": "a"}.get(name, "")
            info.mtime = date + 0.5  # as a record of pax
            info.pax_headers = {"atime": f"{date}.25"}
            if name == "opt/a":
                info.size = 3
                info.pax_headers |= {"SCHILY.xattr.user.kept": "yes"}
            tar.addfile(info, io.BytesIO(b"one") if name == "opt/a" else None)
    config = {
        "created": f"2026-01-01T00:00:{date:02d}Z",
        "config": {"Env": ["A=b=c"], "User": "1:2", "Entrypoint": ["/x"]},
    }
    manifest = [{"Config": "id.json", "RepoTags": [f"at:{date}"], "Layers": ["id/layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        for name, content in (
            ("id/layer.tar", layer.getvalue()),
            ("id.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), date
            tar.addfile(info, io.BytesIO(content))


def read_json(tar: tarfile.TarFile, name: str) -> Any:
    file = tar.extractfile(name)
    assert file is not None
    return json.load(file)


def test_images_saved_at_two_dates_become_the_same_bytes(tools: Any, tmp_path: Path) -> None:
    archives = []
    for date in (1, 2):
        write_saved(saved := tmp_path / f"saved-{date}.tar", date)
        tools("docker").remove_dates(saved, "a/b:c", archive := tmp_path / f"{date}.tar")
        archives.append(archive)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as tar:
        (manifest,) = read_json(tar, "manifest.json")
        assert manifest["RepoTags"] == ["a/b:c"]
        config = read_json(tar, manifest["Config"])["config"]
        assert (config["Env"], config["User"], config["Entrypoint"]) == (["A=b=c"], "1:2", ["/x"])
        with tarfile.open(fileobj=tar.extractfile(manifest["Layers"][0])) as layer:
            found = {each.name: each for each in layer}
            file = layer.extractfile("opt/b")  # through the link
            assert file is not None
            assert file.read() == b"one"
    assert list(found) == ["opt", "opt/a", "opt/b", "opt/c", "opt/.wh.gone"]
    assert {(each.mtime, each.uid, each.gid) for each in found.values()} == {(0, 3, 4)}
    assert found["opt/a"].pax_headers == {"SCHILY.xattr.user.kept": "yes"}
    assert (found["opt/a"].mode, found["opt/c"].linkname) == (0o640, "a")


def test_docker_gets_only_what_is_copied_with_the_modes_of_a_checkout(
    tools: Any, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    for name, mode in (("code/run", 0o775), ("code/read", 0o664), ("other", 0o644)):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
    (tmp_path / "Dockerfile").write_text(
        "FROM a AS b\nCOPY code /x\nFROM b\nCOPY --from=b /other /\n"
    )
    text = tools("docker").with_arguments((tmp_path / "Dockerfile").read_text(), {"PIP_X": "y"})
    assert text.startswith("FROM a AS b\nARG PIP_X\nCOPY code /x\nFROM b\nARG PIP_X\n")
    stages = tools("dockerfile").read(tmp_path / "Dockerfile")
    target = io.BytesIO()
    tools("docker").write_context(tools("context").Context(tmp_path), text, stages, target)
    target.seek(0)
    with tarfile.open(fileobj=target) as tar:
        modes = {each.name: each.mode for each in tar}
        assert {(each.mtime, each.uid) for each in tar} == {(0, 0)}
    assert modes == {"Dockerfile": 0o644, "code/run": 0o755, "code/read": 0o644}
