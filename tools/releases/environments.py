"""Python environments, made from hashed requirements, in build/release."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


class Environments:
    """The tools that make a release, and the packages that the functions' image has.

    Parameters
    ----------
    root
        The project.
    progress
        Called with a line at every step.
    """

    def __init__(self, root: Path, progress: Callable[[str], None]) -> None:
        self._root = root
        self._progress = progress
        self._home = root / "build" / "release"
        self._tools = self._environment("tools", Path(__file__).with_name("requirements.txt"))
        self.python = self._environment("packages", root / "requirements.txt") / "bin" / "python"

    @property
    def packages(self) -> Path:
        """The directory of the packages that the image has, with their metadata."""
        (found,) = self.python.parents[1].glob("lib/python3*/site-packages")
        return found

    def wheels(self, out: Path, epoch: str) -> None:
        """Build the wheels of Stampede and its client, each file dated `epoch` (seconds)."""
        build = self._home / "source"
        shutil.rmtree(build, ignore_errors=True)
        # Of the committed files alone: setuptools would add what lies about in build/.
        build.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=self._root, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", build], input=archive.stdout, check=True)
        command = [self._tools / "bin" / "python", "-m", "pip", "wheel", "--quiet", "--no-deps"]
        sources = [build / "client", build]
        options = ["--no-build-isolation", "--no-cache-dir", "--wheel-dir", out, *sources]
        environment = os.environ | {"SOURCE_DATE_EPOCH": epoch, "PYTHONPATH": ""}
        subprocess.run([*command, *options], check=True, env=environment)
        shutil.rmtree(build)

    def sbom(self, path: Path) -> None:
        """Write the Python packages of the image as CycloneDX."""
        command = [self._tools / "bin" / "cyclonedx-py", "environment", "--output-reproducible"]
        options = ["--of", "JSON", "--pyproject", self._root / "pyproject.toml", "-o", path]
        subprocess.run([*command, *options, self.python], check=True, env=os.environ)

    def _environment(self, name: str, requirements: Path) -> Path:
        """An environment with exactly `requirements`, made again if they changed."""
        directory = self._home / name
        made_of = directory / "requirements.txt"
        if made_of.exists() and made_of.read_bytes() == requirements.read_bytes():
            return directory
        self._progress(f"Python environment {name} (about 40 s)")
        shutil.rmtree(directory, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        pip = [directory / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        options = ["--quiet", "--require-hashes", "--requirement", requirements]
        subprocess.run([*pip, "install", *options], check=True)
        shutil.copyfile(requirements, made_of)
        return directory
