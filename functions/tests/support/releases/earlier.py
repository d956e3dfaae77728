"""The sources of earlier releases, out of the history, and what their code does with a bucket."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.releases.contents import Names

ROOT = Path(__file__).parents[4]
COMMITS = {
    # No commit is 0.1.0 alone: this is the first with the section of 0.1.0 in CHANGELOG.md and with
    # its bucket in tests/fixtures. It has five later changes too, in its changes.d.
    "0.1.0": "10480b37d8aa13f85c3b912707b8627e51bd89b0",
}
"""The commit of each release."""


class Earlier:
    """The code of an earlier release, in an empty folder.

    Raises `AssertionError` if the history lacks its commit, as that of a shallow clone does.
    """

    def __init__(self, version: str, folder: Path) -> None:
        self.version, self.folder = version, folder
        folder.mkdir()
        unpack(version, folder, "functions", "client")

    def ask(self, bucket: Path, names: Names, programmes: str) -> dict[str, Any]:
        """What a bucket says to it by each door, or why it refuses."""
        return json.loads(self._run("ask", bucket, names, programmes).stdout)

    def go_on(self, bucket: Path, names: Names, programmes: str) -> str:
        """Let its functions merge, repair and delete in a bucket; what they log."""
        return self._run("go-on", bucket, names, programmes).stderr

    def _run(
        self, do: str, bucket: Path, names: Names, programmes: str
    ) -> subprocess.CompletedProcess[str]:
        spool = self.folder / "spool"
        spool.mkdir(exist_ok=True)
        functions = self.folder / "functions"
        done = subprocess.run(
            [sys.executable, "-P", Path(__file__).with_name("within.py"), do, bucket, spool],
            input=json.dumps({"names": names._asdict(), "programmes": programmes}),
            env=os.environ | {"PYTHONPATH": f"{functions}:{self.folder / 'client'}"},
            cwd=functions,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done


def unpack(version: str, folder: Path, *paths: str) -> None:
    """Write the files of a release into a folder: some, or all. Raises `AssertionError`."""
    line = ["git", "-C", str(ROOT), "archive", COMMITS[version], *paths]
    archive = subprocess.run(line, capture_output=True)
    assert archive.returncode == 0, (
        f"the history lacks commit {COMMITS[version]} of release {version}: "
        f"git fetch --unshallow ({archive.stderr.decode().strip()})"
    )
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
