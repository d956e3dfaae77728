"""`stampede rebuild`: reads every table from its runs, and says where a checkpoint is wrong."""

from dataclasses import replace
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.checkpoint import CHECKPOINTS, is_checkpoint
from stampede.store.tables.checkpoint_files import newest_checkpoint, put_checkpoint
from stampede.store.tables.table import Table
from tests.support.store.two_sites import put_all

# Starts processes: too slow for the quick loop.
pytestmark = pytest.mark.integration


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(store=f"file://{tmp_path}/first", replica=f"file://{tmp_path}/second")
    for number in range(3):
        put_all(open_objects(made), range(4 * number, 4 * number + 4))
    return made


@pytest.fixture
def rebuild(run, settings: Settings):
    def go(*options: str):
        return run(
            "rebuild", *options, STAMPEDE_STORE=settings.store, STAMPEDE_REPLICA=settings.replica
        )

    return go


def checkpoints(objects: Objects) -> list[str]:
    return [info.key for info in objects.list(CHECKPOINTS) if is_checkpoint(info.key)]


def test_a_lost_checkpoint_is_written_again_and_only_once(rebuild, settings: Settings) -> None:
    objects = open_objects(settings)
    result = rebuild("--check")
    assert (result.status, checkpoints(objects)) == (0, [])
    assert "detections: 3 parts read in " in result.out
    assert "; there was no checkpoint" in result.out
    assert "detections: reading 3 parts" in result.err
    result = rebuild()
    assert result.status == 0
    written = checkpoints(objects)
    assert [key.split("/")[1] for key in written] == ["cutouts", "detections"]
    assert all(f"; new: {key}" in result.out for key in written)
    parts = newest_checkpoint(objects, DETECTIONS).parts
    assert list(parts) == [part.key for part in Table(objects, DETECTIONS).listed()]
    again = rebuild()
    assert (again.status, checkpoints(objects)) == (0, written)
    assert "new:" not in again.out
    assert f"the checkpoint {written[1]} lacks 0 of them" in again.out


def test_a_damaged_checkpoint_is_named_and_replaced(rebuild, settings: Settings) -> None:
    objects = open_objects(settings)
    rebuild()
    [key, other] = checkpoints(objects)
    objects.put(key, objects.get(key)[:-9])
    named = rebuild("--check")
    assert named.status == 1
    assert f"{key}: {key} is damaged" in named.out
    assert objects.head(key).size
    repaired = rebuild()
    assert repaired.status == 0
    assert "(mended)" in repaired.out
    assert len(newest_checkpoint(objects, CUTOUTS).parts) == 3
    assert len(checkpoints(objects)) == 2
    assert key not in checkpoints(objects)
    assert other in checkpoints(objects)
    assert rebuild("--check").status == 0


def test_a_checkpoint_that_says_what_no_footer_says_is_replaced(
    rebuild, settings: Settings
) -> None:
    """Its digest is right: a machine with bad memory wrote it, or a program with a bug."""
    objects = open_objects(settings)
    rebuild()
    old = newest_checkpoint(objects, DETECTIONS)
    first, *others = old.parts.values()
    wrong = put_checkpoint(
        objects, DETECTIONS, [replace(first, coverage=others[0].coverage), *others]
    )
    assert len(Table(objects, DETECTIONS).coverage()) == 8
    named = rebuild("--check")
    assert named.status == 1
    assert f"{first.key}: {wrong} does not say what its footer says" in named.out
    assert rebuild().status == 0
    assert wrong not in checkpoints(objects)
    assert len(Table(objects, DETECTIONS).coverage()) == 12
    assert rebuild("--check").status == 0


def test_a_lost_run_stays_named(rebuild, settings: Settings) -> None:
    objects = open_objects(settings)
    rebuild()
    lost, *_ = Table(objects, DETECTIONS).runs()
    objects.delete(lost.key)
    for options in (("--check",), (), ()):
        result = rebuild(*options)
        assert result.status == 1
        assert f"{lost.key}: a run is gone" in result.out


def test_the_second_site_has_its_own(run, rebuild, settings: Settings) -> None:
    env = {"STAMPEDE_STORE": settings.store, "STAMPEDE_REPLICA": settings.replica}
    run("reconcile", **env, STAMPEDE_RECONCILE="replica")
    assert rebuild("--site", "replica").status == 0
    assert len(checkpoints(open_replica(settings))) == 2
    assert checkpoints(open_objects(settings)) == []
    alone = run("rebuild", "--site", "replica", STAMPEDE_STORE=settings.store)
    assert "there is no second site" in alone.one_line()
