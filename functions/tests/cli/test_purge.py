"""`stampede purge`: what is of programmes that are not stored any more."""

from pathlib import Path

import pytest

from stampede.config.settings import Settings
from tests.support.alerts.mixed_programmes import mixed_alert
from tests.support.store.stored_packets import store

# Starts processes: too slow for the quick loop.
pytestmark = pytest.mark.integration


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(
        store=f"file://{tmp_path}/first", spool=tmp_path, ztf_programids="1,2,3", grace_seconds=0
    )
    store(made, [mixed_alert(11), mixed_alert(12, own=2, object_id="ZTF18bbbbbbb")])
    return made


@pytest.fixture
def purge(run, settings: Settings, tmp_path: Path):
    def go(*options: str, programids: str = "1"):
        return run(
            "purge",
            *options,
            STAMPEDE_STORE=settings.store,
            STAMPEDE_SPOOL=str(tmp_path),
            STAMPEDE_ZTF_PROGRAMIDS=programids,
        )

    return go


def test_it_counts_then_removes_and_the_ledger_stays_whole(
    purge, run, settings: Settings, tmp_path: Path
) -> None:
    nothing = purge("--check", programids="1,2,3")
    assert (nothing.status, nothing.out) == (0, "nothing is of other programmes than 1,2,3\n")
    counted = purge("--check")
    assert counted.status == 1
    assert counted.out.splitlines() == [
        "alerts: 1 object",
        "packets: 1 object",
        "packs: 1 object",
        "tables/cutouts: 1 run with such rows",
        "tables/detections: 1 run with such rows",
        "tables/packets: 1 run with such rows",
        "tables/positions: 1 run with such rows",
    ]
    removed = purge()
    assert removed.status == 0, removed.err
    assert "tables/detections: 1 run rewritten" in removed.out
    assert "packets/" in removed.err
    again = purge()
    assert (again.status, again.out) == (0, "nothing is of other programmes than 1\n")
    deep = run("audit", "--deep", STAMPEDE_STORE=settings.store)
    assert deep.status == 0, deep.out + deep.err
