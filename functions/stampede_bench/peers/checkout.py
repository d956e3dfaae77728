"""A checkout of another system: which one it is, its commit, and its own Python.

Nothing of a peer is a part of this project. A user clones it, and gives it a virtual environment
`.venv` of its own in the checkout, with the packages that it needs.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stampede.errors import SetupError

_SECONDS = 120  # to import a peer on a busy machine


class Peer(NamedTuple):
    """A system that is measured.

    Attributes
    ----------
    title
        What it is called in tables.
    repository
        ``OWNER/NAME`` on GitHub, or the name of a project that is elsewhere.
    holds
        A file by which its checkout is recognised.
    imports
        A module of it, which its Python must be able to import.
    install
        What ``pip install`` needs to install what it imports.
    clone
        Another command that makes its checkout in ``path``.
    make
        Another command that makes its virtual environment, in its folder.
    folders
        Where in its folder its packages are.
    """

    title: str
    repository: str
    holds: str
    imports: str
    install: str = "."
    clone: str = ""
    make: str = ""
    folders: tuple[str, ...] = ("",)

    @property
    def setup(self) -> str:
        """The command that makes its virtual environment."""
        install = f".venv/bin/python -m pip install {self.install}"
        return self.make or f"python3 -m venv .venv && {install}"


VERSION = "stampede"

PEERS = {
    "rubin-ingester": Peer(
        "Rubin's ingester",
        "lsst-dm/alert_database_ingester",
        "alertingest/ingester.py",
        "alertingest.ingester",
    ),
    # Its main module imports boto3, which its `setup.cfg` does not list.
    "rubin-server": Peer(
        "Rubin's server",
        "lsst-dm/alert_database_server",
        "alertdb/server.py",
        "alertdb.bin.alertdb",
        "boto3 .",
    ),
    "fink": Peer(
        "Fink's cutout service",
        "astrolabsoftware/fink-cutout-api",
        "app_ztf.py",
        "app_ztf, gunicorn",
        "-r requirements.txt",
    ),
    VERSION: Peer(
        "Stampede",
        "Stampede",
        "functions/stampede_local/up.py",
        "stampede.cli.main, stampede_local.up, stampede_bench",
        clone="git worktree add --detach {path} COMMIT",
        make="make .venv/stampede",
        folders=("functions", "client"),
    ),
}


class Checkout(NamedTuple):
    """A checkout that can be run: the peer, its folder, and its commit, shortened."""

    peer: Peer
    path: Path
    commit: str

    @property
    def title(self) -> str:
        """What it is called in tables."""
        return f"{self.peer.title} at {self.commit}"

    @property
    def python(self) -> str:
        """The interpreter that has the packages of the peer."""
        return str(python_of(self.path))

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which that interpreter imports what is in the checkout."""
        folders = [str(self.path / folder) for folder in self.peer.folders]
        # Not what lies in the directory where the benchmark was started.
        return {"PYTHONPATH": os.pathsep.join(folders), "PYTHONSAFEPATH": "1"}


def parse(texts: Sequence[str]) -> tuple[tuple[str, Path], ...]:
    """The peers of ``NAME=PATH``, each with its folder.

    Raises `SetupError` for another form, for a name that is not in `PEERS` and for one that is
    given twice.
    """
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (equals and path):
            raise SetupError(f"--peer {text!r}: give NAME=PATH, for example rubin-server=DIRECTORY")
        if name not in PEERS:
            raise SetupError(f"no peer {name!r}: there are {', '.join(PEERS)}")
        if name in found:
            raise SetupError(f"the peer {name} is given twice")
        found[name] = Path(path).expanduser().absolute()
    return tuple(found.items())


def open_checkout(name: str, path: Path) -> Checkout:
    """The checkout of a peer in a folder.

    Raises `SetupError` if the folder is not a checkout of that peer, or if its Python lacks a
    package.
    """
    peer = PEERS[name]
    if not (path / peer.holds).is_file():
        raise SetupError(
            f"{path} is not a checkout of {peer.repository}: it has no {peer.holds}. Run:\n"
            f"  {peer.clone.format(path=path) or f'git clone https://github.com/{peer.repository}'}"
        )
    commit = commit_of(path)
    python = python_of(path)
    install = f"  cd {path} && {peer.setup}"
    if not python.exists():
        raise SetupError(f"{path} has no Python of its own. Run:\n{install}")
    found = Checkout(peer, path, commit)
    done = subprocess.run(
        [python, "-c", f"import {peer.imports}"],
        env=os.environ | found.environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        raise SetupError(f"{python} cannot import {peer.imports}: {why}. Run:\n{install}")
    return found


def python_of(path: Path) -> Path:
    """Where the interpreter of a checkout is."""
    return path / ".venv/bin/python"


def commit_of(path: Path) -> str:
    """The commit of a folder, shortened, with ``+`` if files of it were changed.

    Raises `SetupError` if the folder is not the root of a git repository: figures name a commit.
    """
    root = _git(path, "rev-parse", "--show-toplevel")
    if root is None or Path(root).resolve() != path.resolve():
        raise SetupError(f"{path} is not a git checkout, so its figures would name no commit")
    changed = _git(path, "status", "--porcelain", "--untracked-files=no")
    return f"{_git(path, 'rev-parse', '--short=7', 'HEAD')}{'+' if changed else ''}"


def _git(path: Path, *words: str) -> str | None:
    done = subprocess.run(["git", "-C", path, *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
