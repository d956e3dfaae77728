"""A registry of images on loopback, with an empty directory, that wants a password.

It is Debian's `docker-registry`, taken out of its package: installed, it would start a service.
The one that end-to-end tests build has Traefik's fork of gorilla/mux, and tells only crane that it
wants a password.
"""

import base64
import json
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError

import yaml

from e2e.cluster.places import CACHE
from e2e.commands import until
from e2e.places import ROOT
from stampede_local.ports import free_port

_USER, _PASSWORD = "pull", "pull-local"


class Registry(NamedTuple):
    """A registry that runs."""

    address: str  # 127.0.0.1:PORT
    directory: Path

    @property
    def logins(self) -> Path:
        """A directory whose config.json has the login, as Docker writes it."""
        return self.directory

    def contents(self) -> dict[str, bytes]:
        """All files that it keeps."""
        files = (path for path in (self.directory / "data").rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files if "_uploads" not in path.parts}


@contextmanager
def registry(directory: Path) -> Iterator[Registry]:
    """Run a registry with the password of that of the end-to-end tests."""
    directory.mkdir()
    address = f"127.0.0.1:{free_port()}"
    users, *_ = yaml.safe_load_all((ROOT / "e2e" / "on_cluster" / "registry.yaml").read_text())
    (directory / "users").write_text(users["stringData"]["htpasswd"])
    login = base64.b64encode(f"{_USER}:{_PASSWORD}".encode()).decode()
    (directory / "config.json").write_text(json.dumps({"auths": {address: {"auth": login}}}))
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(directory / "data")}},
        "http": {"addr": address},
        "auth": {"htpasswd": {"realm": "registry", "path": str(directory / "users")}},
    }
    (directory / "config.yml").write_text(yaml.safe_dump(config))
    line = [str(_program()), "serve", str(directory / "config.yml")]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log)
    try:
        until(lambda: _answers(address), 30, 0.2)
        yield Registry(address, directory)
    finally:
        process.terminate()
        process.wait(30)


def _program() -> Path:
    """The installed program, or that of the package in the cache, which is fetched if missing."""
    if installed := shutil.which("docker-registry"):
        return Path(installed)
    program = CACHE / "docker-registry" / "usr" / "bin" / "docker-registry"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            fetch = ["apt-get", "download", "-qq", "docker-registry"]
            subprocess.run(fetch, cwd=scratch, check=True)
            (package,) = Path(scratch).glob("*.deb")
            subprocess.run(["dpkg", "-x", package, program.parents[2]], check=True)
    return program


def _answers(address: str) -> bool:
    """Whether there is a registry at an address: one that wants a password says 401."""
    with suppress(OSError):
        try:
            urllib.request.urlopen(f"http://{address}/v2/", timeout=5)
        except HTTPError as error:
            return error.code == 401
    return False
