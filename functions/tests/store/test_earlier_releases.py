"""An earlier release works on a bucket of this version, and refuses by name what it cannot read.

So a site can go back. docs/store.md says what is promised.
"""

import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from stampede.config.settings import Settings
from stampede.store.parquet import checksums
from tests.support.releases import contents
from tests.support.releases.bucket import PROGRAMMES, fill
from tests.support.releases.contents import DOORS, Names, keys
from tests.support.releases.documented import SINCE_THE_LAST
from tests.support.releases.earlier import COMMITS, Earlier
from tests.support.releases.kept import Release, releases
from tests.support.releases.sent import names_of, stored

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
of_each = pytest.mark.parametrize("version", COMMITS)

OF_FUNCTIONS = ("checkpoints/", "scrub/", "reconcile/", "merges/", "proving/", "probes/")
"""What functions keep for themselves; docs/store.md says that it may be deleted at any time."""


def written(folder: Path) -> Settings:
    """The settings of a new bucket that this version wrote, with objects of every kind."""
    folder.mkdir()
    settings = fill(folder)
    (folder / ".under-way").rmdir()
    return settings


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("present") / "bucket"
    written(folder)
    return folder


@pytest.fixture
def copied(bucket: Path, tmp_path: Path) -> Settings:
    """A bucket of this version, for one test."""
    shutil.copytree(bucket, tmp_path / "bucket")  # with its files' times
    spool = tmp_path / "spool"
    spool.mkdir()
    store = f"file://{tmp_path}/bucket"
    return Settings(store=store, spool=spool, refresh_seconds=0, ztf_programids=PROGRAMMES)


def names_known_to(version: str) -> Names:
    """Everything in the bucket, with the columns that an earlier release has."""
    return names_of(stored())._replace(columns=Release.of(version).names.columns)


def test_each_release_has_a_commit() -> None:
    assert {each.version for each in releases()} == COMMITS.keys()


@of_each
def test_it_reads_what_this_version_wrote(
    version: str, bucket: Path, copied: Settings, tmp_path: Path
) -> None:
    assert any(key.startswith(SINCE_THE_LAST) for key in keys(bucket))  # kinds it does not know
    names = names_known_to(version)
    earlier = Earlier(version, tmp_path / version)
    said = earlier.ask(tmp_path / "bucket", names, PROGRAMMES)
    for door, ask in DOORS.items():
        assert said[door] == ask(copied, names), door


@pytest.mark.nightly
@of_each
def test_there_and_back_again(version: str, copied: Settings, tmp_path: Path) -> None:
    """N wrote it; N-1 merges, deletes and repairs; N goes on with that, and says the same."""
    names = names_known_to(version)
    before = {door: ask(copied, names) for door, ask in DOORS.items()}
    kept = set(keys(tmp_path / "bucket"))
    earlier = Earlier(version, tmp_path / version)
    earlier.go_on(tmp_path / "bucket", names, PROGRAMMES)
    after = set(keys(tmp_path / "bucket"))
    for start in ("packs/", "packets/", "tables/"):
        assert any(key.startswith(start) for key in after - kept), start
        assert any(key.startswith(start) for key in kept - after), start
    assert earlier.ask(tmp_path / "bucket", names, PROGRAMMES) == before
    for door, ask in DOORS.items():
        assert ask(copied, names) == before[door], door
    later = [start for start in SINCE_THE_LAST if start not in OF_FUNCTIONS]
    for start in later:  # it deletes nothing that it does not know
        assert {key for key in kept if key.startswith(start)} <= after, start


@pytest.mark.nightly
@of_each
def test_a_format_of_later_is_refused_by_name(version: str, tmp_path: Path) -> None:
    """As if this version wrote a new format: no door gives half of it as if it were all."""
    later = checksums.FORMAT + 1
    number = {"stampede.format": str(later)}
    with (
        patch.object(checksums, "FORMAT", later),
        patch.dict(checksums.PLACEHOLDER, number),
    ):
        settings = written(tmp_path / "bucket")
        before = contents.said(settings, names_known_to(version))
    earlier = Earlier(version, tmp_path / version)
    kept = {key for key in keys(tmp_path / "bucket") if not key.startswith(OF_FUNCTIONS)}
    said = earlier.ask(tmp_path / "bucket", names_known_to(version), PROGRAMMES)
    reason = f"has format {later}, and this version of Stampede reads up to format"
    assert reason in said["nights"]
    assert any(said[door] != before[door] for door in DOORS)
    log = earlier.go_on(tmp_path / "bucket", names_known_to(version), PROGRAMMES)
    assert f"{reason} {checksums.FORMAT}: a later version wrote it" in log
    assert kept <= set(keys(tmp_path / "bucket"))  # nothing is deleted or merged
