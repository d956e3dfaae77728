"""Tar files: of a layer, and of an image as `docker load` and `ctr` accept it.

The same files give the same bytes: entries are sorted, dates are the epoch.
"""

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from images.layers import Image

_EPOCH = "1970-01-01T00:00:00Z"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_layer(files: Path, target: Path) -> str:
    """Write an overlay's upper directory as a layer and return its SHA-256."""
    with target.open("wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        _add(tar, files, files)
    with target.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def architecture() -> str:
    """The architecture of this machine, as Debian and images name it: ``amd64``, ``arm64``…"""
    return _MACHINES.get(platform.machine(), platform.machine())


class _Layer(NamedTuple):
    tar: Path
    digest: str


class _Program(NamedTuple):
    layers: tuple[_Layer, ...]
    user: str
    env: dict[str, str]
    entrypoint: tuple[str, ...]


def write_program(
    files: Path, name: str, target: Path, user: str = "65532:65532", of: str = ""
) -> None:
    """Write an archive as `write_image` does, of one layer, `files`, which runs its file ``app``.

    The layer's tar file is written beside `files`.
    """
    tar = files.with_name("layer.tar")
    layer = _Layer(tar, write_layer(files, tar))
    write_image(_Program((layer,), user, {}, ("/app",)), name, target, of)


def write_image(image: "Image | _Program", name: str, target: Path, of: str = "") -> None:
    """Write a ``docker save`` archive of `image`, called `name` (``NAME:TAG``).

    Its architecture is `of`, by default this machine's.
    """
    config = {
        "architecture": of or architecture(),
        "os": "linux",
        "created": _EPOCH,
        "config": {
            "Env": [f"{name}={value}" for name, value in image.env.items()],
            "Entrypoint": image.entrypoint,
            "User": image.user or "",
            "WorkingDir": "/",
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{layer.digest}" for layer in image.layers],
        },
        "history": [{"created": _EPOCH} for _ in image.layers],
    }
    packed = json.dumps(config, indent=1).encode()
    config_name = f"{hashlib.sha256(packed).hexdigest()}.json"
    layers = {f"{layer.digest}/layer.tar": layer.tar for layer in image.layers}
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": list(layers)}]
    partial = target.with_name(f"{target.name}.partial")
    with tarfile.open(partial, "w") as tar:
        _add_bytes(tar, config_name, packed)
        for layer_name, path in layers.items():
            info = tarfile.TarInfo(layer_name)
            info.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(info, file)
        _add_bytes(tar, "manifest.json", json.dumps(manifest).encode())
    partial.rename(target)


def _add(tar: tarfile.TarFile, files: Path, directory: Path) -> None:
    for path in sorted(directory.iterdir()):
        name = str(path.relative_to(files))
        about = path.lstat()
        if stat.S_ISCHR(about.st_mode) and about.st_rdev == 0:
            # An overlay marks a removed file with a device node, a layer with a file `.wh.NAME`.
            _add_bytes(tar, str(Path(name).with_name(f".wh.{path.name}")), b"")
            continue
        info = tar.gettarinfo(path, name)
        if info is None:  # a socket
            continue
        info.mtime, info.uname, info.gname = 0, "", ""
        if os.geteuid() != 0:  # an ordinary user can own files only as himself
            info.uid = info.gid = 0
        if info.isreg():
            with path.open("rb") as file:
                tar.addfile(info, file)
        else:
            tar.addfile(info)
        if info.isdir():
            if _is_opaque(path):
                _add_bytes(tar, f"{name}/.wh..wh..opq", b"")
            _add(tar, files, path)


def _is_opaque(path: Path) -> bool:
    try:
        return os.getxattr(path, "trusted.overlay.opaque") == b"y"
    except OSError:
        return False


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    tar.addfile(info, io.BytesIO(content))
