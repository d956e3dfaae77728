"""Image and chart of the last release, made from its commit as `make release` makes them."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from e2e.cluster import Failed
from e2e.cluster.places import IMAGES, ROOT
from e2e.cluster.steps import step
from tests.support.releases.earlier import COMMITS, unpack

REPOSITORY = "dev.local/stampede-earlier"  # the present image has another name


class Earlier(NamedTuple):
    """A release: its chart, and its image as an archive."""

    version: str
    chart: Path
    archive: Path

    def values(self, **more: object) -> dict[str, Any]:
        """Values of the chart that take the release's image."""
        return {"image__repository": REPOSITORY, "image__tag": self.version, **more}


def last_release(directory: Path) -> Earlier:
    """The last release, its sources in an empty directory.

    Raises
    ------
    Failed
        The image cannot be made.
    """
    version = [*COMMITS][-1]
    directory.mkdir()
    unpack(version, directory)
    archive = IMAGES / "stampede-earlier.tar"
    # The Dockerfile where tools/image looks for that of a context.
    shutil.copyfile(directory / "functions" / "Dockerfile", directory / "Dockerfile")
    tag = ("--tag", f"{REPOSITORY}:{version}")
    with step(f"the image of release {version}"):
        line = [str(ROOT / "tools" / "image"), str(archive), "--context", str(directory), *tag]
        run = subprocess.run(line, cwd=ROOT)
    if run.returncode:
        raise Failed(f"tools/image cannot make the image of release {version}")
    return Earlier(version, directory / "charts" / "stampede", archive)
