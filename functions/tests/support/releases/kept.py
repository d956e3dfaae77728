"""The buckets of released versions in tests/fixtures, and what they must say for ever."""

import json
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

from stampede.config.settings import Settings
from tests.support.releases.clock import set_time
from tests.support.releases.contents import Names

FIXTURES = Path(__file__).parents[2] / "fixtures"


class Release:
    """The bucket of one release.

    Attributes
    ----------
    bucket
        The folder with the objects, as that version wrote them.
    file
        JSON: how to read it, and what it says.
    """

    def __init__(self, folder: Path) -> None:
        self.version = folder.name.removeprefix("release-")
        self.bucket, self.file = folder / "bucket", folder / "contents.json"

    @classmethod
    def of(cls, version: str) -> "Release":
        """That of a version."""
        return cls(FIXTURES / f"release-{version}")

    @cached_property
    def promised(self) -> dict[str, Any]:
        """What the file has."""
        return json.loads(self.file.read_text())

    @property
    def names(self) -> Names:
        """What to ask for."""
        return Names(**self.promised["names"])

    def opened(self, folder: Path) -> Settings:
        """Copy the bucket into a folder, with the times that its checkpoints know."""
        shutil.copytree(self.bucket, folder / "bucket")
        for key, (_, seconds) in self.promised["objects"].items():
            set_time(folder / "bucket" / key, seconds)
        return Settings(
            store=f"file://{folder}/bucket",
            spool=folder,
            refresh_seconds=0,
            ztf_programids=self.promised["ztf_programids"],
        )


def releases() -> list[Release]:
    """All of them."""
    return [Release(folder) for folder in sorted(FIXTURES.glob("release-*"))]
