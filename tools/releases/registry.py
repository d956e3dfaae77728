"""A registry of images, through skopeo, with the login of `docker login` or `skopeo login`."""

import json
import re
import subprocess
from hashlib import sha256
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
        separator = "@" if tag.startswith("sha256:") else ":"
        source = f"docker://{self.name}{separator}{tag}"
        done = self._skopeo("inspect", f"--tls-verify={self._tls}", "--raw", source)
        if done.returncode:
            said = done.stderr.decode(errors="replace")
            if _MISSING.search(said):
                return None
            raise RegistryError(f"{self.name}{separator}{tag} cannot be read: {_reason(said)}")
        return f"sha256:{sha256(done.stdout).hexdigest()}", json.loads(done.stdout)

    def push(self, layout: Layout, name: str, tag: str) -> None:
        """Copy what has `name` in a layout, byte for byte, with all architectures.

        Raises `RegistryError`.
        """
        options = ("--quiet", "--all", "--preserve-digests", f"--dest-tls-verify={self._tls}")
        source = f"oci:{layout.directory}:{name}"
        done = self._skopeo("copy", *options, source, f"docker://{self.name}:{tag}")
        if done.returncode:
            said = done.stderr.decode(errors="replace")
            raise RegistryError(f"{self.name}:{tag} cannot be pushed: {_reason(said)}")

    @staticmethod
    def _skopeo(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["skopeo", *arguments], capture_output=True, check=False)


def _reason(said: str) -> str:
    """What skopeo says of an error, on one line."""
    found = re.search(r'msg="((?:[^"\\]|\\.)*)"', said)
    return (found[1] if found else said).strip().replace("\n", " ")
