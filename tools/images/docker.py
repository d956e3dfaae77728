"""Build images with Docker, as any user whom its daemon obeys.

Docker dates layers and configuration by its clock. So the archive of ``docker save`` is written
anew with the epoch in all dates: two builds of the same files have the same digest. That asks
nothing of Docker: neither BuildKit nor buildx, whose exporters can do the same.
"""

import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import IO

from images.archive import write_image
from images.context import Context
from images.dockerfile import Copy, Stage
from images.layers import Image, Layer
from images.world import settings


def refusal(base: str) -> str:
    """Why Docker cannot build on the image `base` here; empty if it can. Pulls the image."""
    try:
        info = _docker("info")
    except FileNotFoundError:
        return "there is no Docker"
    if info.returncode:
        return f"no Docker daemon answers: {_last_line(info)}"
    if _docker("image", "inspect", base).returncode:
        pull = _docker("pull", base)
        if pull.returncode:
            return f"Docker cannot pull {base}: {_last_line(pull)}"
    return ""


class DockerBuilder:
    """Builds images from Dockerfiles with ``docker build``.

    Parameters
    ----------
    context
        The files that COPY may take.
    network
        The network that RUN uses, as ``docker build --network`` takes it; Docker's own for ``""``.
    """

    def __init__(self, context: Context, network: str = "") -> None:
        self._context, self._network = context, network

    def build(
        self, file: Path, stages: Sequence[Stage], target: str, name: str, arguments: dict[str, str]
    ) -> str:
        """Build an image, and call it `name` in Docker; its id.

        Parameters
        ----------
        file, stages
            A Dockerfile, and what it says.
        target
            The stage to build, or ``""`` for the last.
        name
            ``NAME:TAG``.
        arguments
            Values of the Dockerfile's ARGs.

        Raises
        ------
        RuntimeError
            A step failed. Docker has printed which.
        """
        env = settings()
        env.pop("PIP_CERT", None)  # a file of this machine, which no step can see
        with tempfile.TemporaryDirectory() as scratch:
            command = ["docker", "build", f"--iidfile={scratch}/id", f"--tag={name}"]
            command += [f"--network={self._network}"] if self._network else []
            command += [f"--target={target}"] if target else []
            command += [f"--build-arg={key}={value}" for key, value in arguments.items()]
            command += [f"--build-arg={key}" for key in env]  # values from the environment
            with tempfile.TemporaryFile() as context:
                write_context(self._context, with_arguments(file.read_text(), env), stages, context)
                context.seek(0)
                done = subprocess.run(
                    [*command, "-"],
                    stdin=context,
                    stdout=2,
                    # Without it BuildKit adds a record of the build, with its time.
                    env=os.environ | env | {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"},
                )
            if done.returncode:
                raise RuntimeError(f"`docker build` of {name} failed")
            return Path(scratch, "id").read_text().strip()


def with_arguments(dockerfile: str, names: Mapping[str, str]) -> str:
    """A Dockerfile whose every stage declares arguments, so that its steps see their values."""
    declared = "".join(f"\nARG {name}" for name in names)
    return re.sub(r"(?m)^FROM .*$", lambda found: found[0] + declared, dockerfile)


def write_context(
    context: Context, dockerfile: str, stages: Sequence[Stage], target: IO[bytes]
) -> None:
    """Write what ``docker build`` reads: a Dockerfile, and the files that its stages copy.

    The files have the modes of a fresh checkout, and no dates.
    """
    copied = {
        file: None
        for stage in stages
        for step in stage.steps
        if isinstance(step, Copy) and step.stage is None
        for source in step.sources
        for file in context.files(source.strip("/"))
    }
    with tarfile.open(fileobj=target, mode="w") as tar:
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(dockerfile.encode())
        tar.addfile(info, io.BytesIO(dockerfile.encode()))
        for file in copied:
            path = context.root / file
            info = tarfile.TarInfo(str(file))
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
                tar.addfile(info)
                continue
            info.size = path.stat().st_size
            info.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as content:
                tar.addfile(info, content)


def save(image: str, name: str, target: Path) -> None:
    """Write an image of Docker's as an archive, called `name`, with the epoch in all dates.

    Raises
    ------
    RuntimeError
        Docker cannot save it.
    """
    with tempfile.TemporaryDirectory(dir=target.absolute().parent) as scratch:
        saved = Path(scratch, "saved.tar")
        done = _docker("save", f"--output={saved}", image)
        if done.returncode:
            raise RuntimeError(f"`docker save` of {name} failed: {_last_line(done)}")
        remove_dates(saved, name, target)


def remove_dates(saved: Path, name: str, target: Path) -> None:
    """Write an archive of ``docker save`` anew, with the epoch in all dates and `name` alone."""
    with (
        tempfile.TemporaryDirectory(dir=target.absolute().parent) as scratch,
        tarfile.open(saved) as tar,
    ):
        (manifest,) = json.load(_file(tar, "manifest.json"))
        config = json.load(_file(tar, manifest["Config"]))["config"]
        layers = []
        for number, path in enumerate(manifest["Layers"]):
            layer = Layer(path, Path(scratch, str(number)))
            layer.directory.mkdir()
            _write_layer(_file(tar, path), layer.tar)
            with layer.tar.open("rb") as written:
                (layer.directory / "sha256").write_text(file_digest(written, "sha256").hexdigest())
            layers.append(layer)
        env = dict(variable.split("=", 1) for variable in config.get("Env") or ())
        image = Image(tuple(layers), env, config.get("User"), config.get("Entrypoint"))
        write_image(image, name, target)


def _write_layer(layer: IO[bytes], target: Path) -> None:
    with (
        tarfile.open(fileobj=layer, mode="r|*") as old,
        tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as new,
    ):
        for info in old:
            info.mtime, info.uname, info.gname = 0, "", ""
            # Of the rest, dates and long names, tarfile writes the names again.
            info.pax_headers = {
                key: value
                for key, value in info.pax_headers.items()
                if key.startswith("SCHILY.xattr.")
            }
            new.addfile(info, old.extractfile(info) if info.isreg() else None)


def _file(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{tar.name!r} has no file {name}")
    return file


def _docker(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["docker", *arguments], capture_output=True, text=True)


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    return (done.stderr.strip().splitlines() or ["no reason given"])[-1]
