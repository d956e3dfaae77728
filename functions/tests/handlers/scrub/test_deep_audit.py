"""Random damage at two sites: none is answered wrongly, all is found and repaired from a good copy.

`STAMPEDE_FLIPS` sets the number of faults; without it `make test` runs the long campaign.
"""

import os
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.handlers.reconcile.checkpoints import rebuild
from stampede.handlers.reconcile.findings import Findings
from stampede.handlers.reconcile.repair import Repairer
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects, open_replica
from stampede.store.replication.site_differences import Good
from stampede.store.runs import writer as run_writer
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.store.damage import EACH_ROUND, SITES, WAYS, Campaign, contents, fill
from tests.support.store.rows import many

FLIPS = os.environ.get("STAMPEDE_FLIPS")
CAMPAIGNS = [int(FLIPS)] if FLIPS else [25, pytest.param(500, marks=pytest.mark.nightly)]
SEED = 20261122


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Two sites with packs, thumbnails, runs of several levels, with sections, and raw alerts."""
    monkeypatch.setattr(run_writer, "SMALL_FILTER", 0)
    made = Settings(
        store=f"file://{tmp_path}/first",
        replica=f"file://{tmp_path}/second",
        grace_seconds=0,
        fanout=4,
    )
    fill(made)
    assert any(b"stampede.sections" in data for data in contents(open_objects(made)).values())
    first, second = contents(open_objects(made)), contents(open_replica(made))
    assert first == second
    assert len(first) >= 18
    assert deep_audit(made, SITES).faults == []
    return made


@pytest.mark.long
@pytest.mark.parametrize("faults", CAMPAIGNS)
def test_damage_is_never_served_always_found_and_mended(settings: Settings, faults: int) -> None:
    campaign = Campaign(settings, SEED)
    campaign.run(faults)
    assert campaign.done.keys() == set(WAYS)
    assert campaign.asked > 10 * campaign.done.total() / EACH_ROUND


HOLES = {
    "an image is served unread": ("stampede.lookup.packs.images.verified", lambda _, data: data),
    "a run is not read by the scrub": ("stampede.handlers.scrub.scrubber.verify", lambda *_: None),
    "a copy is believed unread": (
        "stampede.store.replication.site_differences.sound",
        lambda *_: True,
    ),
    "the first site is always believed": (
        "stampede.handlers.reconcile.repair.good_copy",
        lambda first, second, difference: Good.FIRST if difference.first else Good.SECOND,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("hole", HOLES)
def test_the_campaign_finds_a_hole(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, hole: str
) -> None:
    """A check is left out on purpose; the campaign must fail."""
    campaign = Campaign(settings, SEED)
    monkeypatch.setattr(*HOLES[hole])
    with pytest.raises((AssertionError, StampedeError)):
        campaign.run(300)


@pytest.mark.long
def test_what_no_site_has_whole_is_left(settings: Settings) -> None:
    sites = [open_objects(settings), open_replica(settings)]
    [info, *_] = sites[0].list("packs/")
    for site in sites:
        site.put(info.key, site.get(info.key)[:-20])
    result = deep_audit(settings, SITES, repair=True)
    assert {fault[:2] for fault in result.left} >= {("store", info.key), ("replica", info.key)}


@pytest.mark.long
def test_checkpoints_stay_at_their_site_and_damaged_ones_go(settings: Settings) -> None:
    first, second = open_objects(settings), open_replica(settings)
    kept: list[str] = []
    for number in range(2):
        rows = many(number + 1)
        for site in (first, second):
            Table(site, DETECTIONS).append(rows, Coverage())
        list(rebuild(second, write=True))
        kept = checkpoints_at(second)
    assert len(kept) == 2
    assert not list(first.list("checkpoints/"))
    repairer = Repairer(first, second, Findings(True, lambda _: None), True, lambda _: False)
    assert not any(map(repairer.repair_key, kept))
    repairer.close()
    second.put(kept[0], second.get(kept[0])[:-20])
    assert [fault.key for fault in deep_audit(settings, SITES).faults] == [kept[0]]
    result = deep_audit(settings, SITES, repair=True)
    assert not result.left
    assert checkpoints_at(second) == kept[1:]
    assert not list(first.list("checkpoints/"))


def checkpoints_at(site: Objects) -> list[str]:
    """The keys of a table's checkpoints; the bucket's id lies beside them."""
    keys = [info.key for info in site.list("checkpoints/detections/")]
    return [key for key in keys if key.endswith(".parquet")]
