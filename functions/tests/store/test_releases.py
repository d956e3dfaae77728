"""Every version reads what 0.1.0 and each later release wrote: docs/store.md promises it.

tests/fixtures/release-VERSION is a bucket that a release wrote itself, of simulated alerts, and
what it says. CONTRIBUTING.md says how the next one comes there.
"""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stampede import __version__
from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.handlers.compact import compact_tables
from stampede.handlers.reconcile.checkpoints import rebuild
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.handlers.scrub.handler import scrub_sites
from stampede.store.open import open_objects
from tests.handlers.merges.passes import run_merges
from tests.support.releases import contents
from tests.support.releases.contents import DOORS, keys
from tests.support.releases.documented import OF_PROGRAMMES, SINCE_THE_LAST, formats, kinds
from tests.support.releases.kept import Release, releases

of_each = pytest.mark.parametrize("release", releases(), ids=lambda each: each.version)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Settings]:
    """The settings that read a copy of each bucket, by version."""
    return {each.version: each.opened(tmp_path_factory.mktemp("bucket")) for each in releases()}


def kinds_without(found: Iterable[str]) -> list[str]:
    """The kinds of objects in docs/store.md of which none of these keys is."""
    found = list(found)
    return [name for name, key in kinds().items() if not any(map(key.fullmatch, found))]


def formats_in(folders: Iterable[Path]) -> set[int]:
    """The format numbers of the Parquet objects below these folders."""
    files = chain.from_iterable(folder.rglob("*.parquet") for folder in folders)
    return {int(pq.read_metadata(file).metadata[b"stampede.format"]) for file in files}


def test_this_release_has_a_bucket() -> None:
    assert __version__ in {each.version for each in releases()}


def test_every_kind_of_object_is_in_a_bucket() -> None:
    without = kinds_without(key for each in releases() for key in keys(each.bucket))
    assert without == [name for name in kinds() if name.startswith(SINCE_THE_LAST)]


def test_every_format_number_is_in_a_bucket() -> None:
    assert formats_in(each.bucket for each in releases()) >= formats()
    assert formats() >= {1, 2, 3}


@of_each
def test_it_has_names_with_programmes_and_without(release: Release) -> None:
    for start in OF_PROGRAMMES:
        named = [key for key in keys(release.bucket) if key.startswith(start)]
        assert {"-programid" in key for key in named} == {True, False}, start


@of_each
def test_its_objects_are_as_the_release_wrote_them(release: Release) -> None:
    objects = {key: digest for key, (digest, _) in release.promised["objects"].items()}
    assert objects == {
        key: contents.digest((release.bucket / key).read_bytes()) for key in keys(release.bucket)
    }


@of_each
@pytest.mark.parametrize("door", DOORS)
def test_it_says_the_same(release: Release, opened: dict[str, Settings], door: str) -> None:
    assert DOORS[door](opened[release.version], release.names) == release.promised[door]


@of_each
def test_the_client_reads_the_same_from_the_bucket(
    release: Release, opened: dict[str, Settings]
) -> None:
    curves = contents.light_curves_of_the_bucket(opened[release.version], release.names)
    assert curves == release.promised["light_curves"]


@pytest.mark.long
@of_each
def test_scrub_finds_no_fault(release: Release, opened: dict[str, Settings]) -> None:
    result = deep_audit(opened[release.version], ["store"])
    assert result.faults == []
    assert result.totals["store"].objects == len(keys(release.bucket))
    assert result.totals["store"].foreign == 0


@of_each
def test_its_checkpoints_say_what_its_footers_say(
    release: Release, opened: dict[str, Settings]
) -> None:
    for table in rebuild(open_objects(opened[release.version]), write=False):
        assert (table.wrong, table.unreadable, table.faults) == ({}, {}, {})
        assert table.before or table.table == "moving"  # which came after 0.1.0
        assert table.newer < table.parts or not table.parts


@pytest.mark.long
@of_each
def test_the_functions_go_on_with_it(release: Release, tmp_path: Path) -> None:
    """They merge what is due, delete what was merged, read it all, and lose nothing."""
    settings = release.opened(tmp_path).model_copy(
        update={
            **{"fanout": 2, "grace_seconds": 0, "scrub_days": 0},
            **{"merge_days": 0, "orphan_days": 1e-9},
        }
    )
    before = set(keys(tmp_path / "bucket"))
    for _ in range(3):
        compact_tables(settings)
        run_merges(settings)
        Reconciler(settings).run()
        scrub_sites(settings)
    after = set(keys(tmp_path / "bucket"))
    for start in ("packs/", "thumbnails/", "packets/", "alerts/", "tables/"):
        assert any(key.startswith(start) for key in before - after), start
        assert any(key.startswith(start) for key in after - before), start
    assert deep_audit(settings, ["store"]).faults == []
    for door, ask in DOORS.items():
        assert ask(settings, release.names) == release.promised[door], door


@of_each
def test_a_kind_that_no_bucket_has_is_named(release: Release) -> None:
    found = keys(release.bucket)
    for kind, key in kinds().items():
        assert kind in kinds_without(each for each in found if not key.fullmatch(each))


def test_a_format_number_that_no_bucket_has_is_lacking() -> None:
    assert formats_in(each.bucket / "alerts" for each in releases()) == {1}


@pytest.mark.long
@of_each
def test_damage_is_a_fault(release: Release, tmp_path: Path) -> None:
    """Of one object of each kind that `scrub` compares with something."""
    settings = release.opened(tmp_path)
    found = keys(release.bucket)
    starts = {key.split("/")[0] + "/" for key in found} - {"probes/"}
    damaged = {next(key for key in found if key.startswith(start)) for start in starts}
    for key in damaged:
        file = tmp_path / "bucket" / key
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    assert {fault.key for fault in deep_audit(settings, ["store"]).faults} >= damaged


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Settings]:
    """Copies of all buckets without most objects that were not merged."""
    made = {each.version: each.opened(tmp_path_factory.mktemp("lacking")) for each in releases()}
    for settings in made.values():
        bucket = Path(settings.store.removeprefix("file://"))
        for start in ("thumbnails", "packets", "alerts", "deadletters", "tables"):
            for file in (bucket / start).rglob("*.parquet"):
                if not file.name.startswith("merged"):
                    file.unlink()
    return made


@of_each
@pytest.mark.parametrize("door", DOORS)
def test_a_bucket_that_lacks_objects_does_not_say_the_same(
    release: Release, lacking: dict[str, Settings], door: str
) -> None:
    try:
        said = DOORS[door](lacking[release.version], release.names)
    except (AssertionError, KeyError, StampedeError):
        return
    assert said != release.promised[door]
