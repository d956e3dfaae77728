"""An ordinary user in Docker's group builds an image: the files that root builds."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.cluster.built import docker
from e2e.cluster.kind import BuiltKind
from e2e.on_cluster.kubernetes import Cluster
from e2e.places import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]
USER, GROUP = 65533, 64999  # of no account
BASE = "dev.local/debian:test"
STEPS = """
FROM ${BASE} AS made
RUN mkdir -p /opt/made && date --utc +%s.%N > /dev/null && echo one > /opt/made/one \\
 && ln /opt/made/one /opt/made/two && ln -s one /opt/made/three && chown 7:8 /opt/made/one

FROM ${BASE}
COPY files /opt/files
COPY --from=made /opt/made /opt/made
RUN rm -r /etc/apt && mkdir /etc/apt && echo new > /etc/apt/new
ENV GREETING=hello
USER 65532:65532
ENTRYPOINT ["/bin/cat"]
"""


class Entry(NamedTuple):
    """What a container sees of a file."""

    type: bytes
    mode: int
    owner: tuple[int, int]
    content: str


@pytest.fixture
def workshop() -> Iterator[Path]:
    """A directory that another user can enter, with copies of tools/image and a Dockerfile."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        shutil.copytree(ROOT / "tools", place / "tools", ignore=shutil.ignore_patterns("*.pyc"))
        shutil.copy(ROOT / "pyproject.toml", place)
        ((context := place / "context") / "files").mkdir(parents=True)
        (context / "files" / "script").write_text("#!/bin/sh\n")
        (context / "files" / "script").chmod(0o775)
        dockerfile = (ROOT / "functions" / "Dockerfile").read_text()
        (base,) = (line for line in dockerfile.splitlines() if line.startswith("ARG BASE="))
        (context / "Dockerfile").write_text(base + STEPS)
        ((base_only := place / "base") / "Dockerfile").parent.mkdir()
        (base_only / "Dockerfile").write_text(f"{base}\nFROM ${{BASE}}\n")
        (place / "out").mkdir()
        os.chown(place / "out", USER, GROUP)
        yield place


@pytest.fixture
def user(workshop: Path) -> Iterator[Mapping[str, Any]]:
    """Options of `subprocess.run` for a user who may use Docker because of a group alone."""
    socket = workshop / "docker.sock"
    os.link(docker.SOCKET, socket)  # its own directory may be closed to others
    before = socket.stat().st_gid
    os.chown(socket, -1, GROUP)
    env = {"HOME": str(workshop / "out"), "PATH": docker.ENV["PATH"]}
    env |= {"DOCKER_HOST": f"unix://{socket}", "STAMPEDE_IMAGE_BASE": BASE}
    try:
        yield {"user": USER, "group": USER, "extra_groups": [GROUP], "env": env}
    finally:
        os.chown(socket, -1, before)


def run(*command: object, **options: Any) -> str:
    """Run a command that must succeed; its output."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def digest(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(archive: Path) -> tuple[dict[str, Entry], dict[str, Any]]:
    """The files that a container of this image sees, and the image's settings."""
    files: dict[str, Entry] = {}
    with tarfile.open(archive) as image:
        (manifest,) = json.loads(content(image, "manifest.json"))
        settings = json.loads(content(image, manifest["Config"]))["config"]
        for path in manifest["Layers"]:
            with tarfile.open(fileobj=image.extractfile(path)) as layer:
                _add(layer, files)
    return files, settings


def content(tar: tarfile.TarFile, member: str | tarfile.TarInfo) -> bytes:
    """The content of a file, or of the one that it links to."""
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def _add(layer: tarfile.TarFile, files: dict[str, Entry]) -> None:
    for member in layer:
        name = str(Path("/", member.name))
        parent, _, last = name.rpartition("/")
        if last == ".wh..wh..opq":
            _remove_below(files, parent)
        elif last.startswith(".wh."):
            gone = f"{parent}/{last.removeprefix('.wh.')}"
            files.pop(gone, None)
            _remove_below(files, gone)
        elif name != "/":
            kind, what = member.type, member.linkname
            if member.isreg() or member.islnk():
                kind, what = tarfile.REGTYPE, hashlib.sha256(content(layer, member)).hexdigest()
            files[name] = Entry(kind, member.mode, (member.uid, member.gid), what)


def _remove_below(files: dict[str, Entry], directory: str) -> None:
    for path in [path for path in files if path.startswith(f"{directory}/")]:
        del files[path]


def test_an_ordinary_user_builds_the_image_that_root_builds(
    cluster: Cluster, workshop: Path, user: Mapping[str, Any]
) -> None:
    if not isinstance(cluster.backend, BuiltKind):
        pytest.skip("the Docker daemon is not of our own")
    compare(workshop, user)


def compare(workshop: Path, user: Mapping[str, Any]) -> None:
    tool, context, out = workshop / "tools" / "image", workshop / "context", workshop / "out"
    daemon = {"env": os.environ | docker.ENV}
    alone = ("--builder", "chroot", "--tag", BASE, "--context")
    run(tool, workshop / "base.tar", *alone, workshop / "base")
    run("docker", "load", f"--input={workshop / 'base.tar'}", **daemon)
    tag = ("--tag", "dev.local/probe:1", "--context", context)
    try:
        for name in ("one", "two"):
            run(tool, out / f"{name}.tar", *tag, **user)
            run("docker", "rmi", "dev.local/probe:1", **daemon)
            run("docker", "image", "prune", "--force", **daemon)  # so the next build runs all steps
    finally:
        run("docker", "rmi", BASE, **daemon)
    assert (out / "one.tar").stat().st_uid == USER
    assert digest(out / "one.tar") == digest(out / "two.tar")
    run(tool, workshop / "root.tar", "--builder", "chroot", *tag)
    files, settings = read(out / "one.tar")
    expected, expected_settings = read(workshop / "root.tar")
    assert settings == expected_settings
    assert files == expected
    assert files["/opt/made/two"].owner == (7, 8)
    assert files["/opt/files/script"].mode == 0o755
    assert [name for name in files if name.startswith("/etc/apt/")] == ["/etc/apt/new"]
