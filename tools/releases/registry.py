"""A registry of images, through skopeo, with the login of `docker login` or `skopeo login`."""

import json
import re
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

from releases.layout import Layout

_MISSING = re.compile(r"manifest unknown|name unknown|NAME_UNKNOWN|MANIFEST_UNKNOWN|not found|404")
_LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?/")


class RegistryError(RuntimeError):
    """A registry, or skopeo, refused something."""


class Repository:
    """A repository in a registry: ``HOST/PATH/NAME``. One on loopback is spoken to without TLS."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tls = "false" if _LOOPBACK.match(name) else "true"

    def manifest(self, tag: str) -> tuple[str, dict[str, Any]] | None:
        """Digest and document of what has this tag or digest; None if nothing has it.

        Raises `RegistryError` if the registry does not tell.
        """
        address = self._address(tag)
        done = self._skopeo("inspect", f"--tls-verify={self._tls}", "--raw", address)
        if done.returncode:
            said = done.stderr.decode(errors="replace")
            if _MISSING.search(said):
                return None
            name = address.removeprefix("docker://")
            raise RegistryError(f"{name} cannot be read: {_reason(said)}")
        return f"sha256:{sha256(done.stdout).hexdigest()}", json.loads(done.stdout)

    def push(self, layout: Layout, name: str, tag: str) -> None:
        """Copy what has `name` in a layout, byte for byte, with all architectures.

        Raises `RegistryError`.
        """
        self._copy(f"oci:{layout.directory}:{name}", self._address(tag), "dest")

    def push_folder(self, folder: Path, tag: str) -> None:
        """Copy what `save_folder` wrote, byte for byte. Raises `RegistryError`."""
        self._copy(f"dir:{folder}", self._address(tag), "dest")

    def save_folder(self, tag: str, folder: Path) -> None:
        """Copy what has this tag or digest into a folder, byte for byte, with all architectures.

        Raises `RegistryError`.
        """
        self._copy(self._address(tag), f"dir:{folder}", "src")

    def _address(self, tag: str) -> str:
        return f"docker://{self.name}{'@' if tag.startswith('sha256:') else ':'}{tag}"

    def _copy(self, source: str, target: str, side: str) -> None:
        options = ("--quiet", "--all", "--preserve-digests", f"--{side}-tls-verify={self._tls}")
        done = self._skopeo("copy", *options, source, target)
        if done.returncode:
            said = _reason(done.stderr.decode(errors="replace"))
            name = (target if side == "dest" else source).removeprefix("docker://")
            raise RegistryError(f"{name} cannot be copied: {said}")

    @staticmethod
    def _skopeo(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["skopeo", *arguments], capture_output=True, check=False)


def _reason(said: str) -> str:
    """What skopeo says of an error, on one line."""
    found = re.search(r'msg="((?:[^"\\]|\\.)*)"', said)
    return (found[1] if found else said).strip().replace("\n", " ")
