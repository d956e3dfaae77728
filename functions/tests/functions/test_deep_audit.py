"""Random damage at two sites: none is answered wrongly, all is found, and mended from a good copy.

`STAMPEDE_FLIPS` sets the number of faults; without it `make test` runs the long campaign.
"""

import json
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stampede.alerts.columns import KINDS
from stampede.functions.deep_audit import deep_audit
from stampede.functions.reconcile import Reconciler
from stampede.functions.thumbnails import Thumbnails
from stampede.read.app import make_app
from stampede.settings import Settings
from stampede.store import ledger
from stampede.store.compaction import compact
from stampede.store.objects import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.raw import PREFIX
from stampede.store.runs import digest
from stampede.store.schema import CUTOUTS, DETECTIONS, THUMBNAILS
from stampede.store.tables import Table
from tests.support.read_service import serving
from tests.support.two_sites import put_all

FLIPS = os.environ.get("STAMPEDE_FLIPS")
CAMPAIGNS = [int(FLIPS)] if FLIPS else [60, pytest.param(2000, marks=pytest.mark.long)]
EACH_ROUND = 6
ALERTS = 24
SITES = ("store", "replica")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Two sites with packs, thumbnails, runs of several levels, letters and raw alerts."""
    made = Settings(
        store=f"file://{tmp_path}/first",
        replica=f"file://{tmp_path}/second",
        grace_seconds=0,
        fanout=4,
    )
    objects = open_objects(made)
    drawing = Thumbnails(made)
    for number in range(ALERTS // 4):
        pack = put_all(objects, range(4 * number, 4 * number + 4))
        drawing.make(pack.key)
    for _ in range(2):
        for spec in (CUTOUTS, DETECTIONS, THUMBNAILS):
            compact(Table(objects, spec), datetime.now(UTC), fanout=4, grace=timedelta())
    for prefix in (f"{PREFIX}lsst/0/60000/",):
        data = b"PAR1 the survey's own columns"
        objects.put(f"{prefix}{digest(data)}.parquet", data)
    ledger.expect(objects, "files-1", 7)
    chosen = made.model_copy(update={"reconcile": "replica"})
    Reconciler(chosen).run()
    assert len(list(objects.list(""))) == len(list(open_replica(made).list(""))) >= 18
    return made


def contents(objects: Objects) -> dict[str, bytes]:
    return {info.key: objects.get(info.key) for info in objects.list("")}


def answers(settings: Settings) -> dict[str, tuple[int, bytes]]:
    """What the read service answers, from a new process's view."""
    paths = [f"/v1/alerts/{n}/cutouts/{kind}" for n in range(1, ALERTS, 5) for kind in KINDS]
    paths += [f"/v1/alerts/{n}/thumbnail" for n in range(1, ALERTS, 5)]
    paths += ["/v1/objects/1/lightcurve"]
    found = {}
    for read in serving(make_app(settings)):
        for path in paths:
            response = read(path)
            whole = "Stampede-Incomplete" not in response.headers
            found[path] = response.status, response.data if whole else b""
    return found


def damage(dice: random.Random, sites: list[Objects], hit: set[str]) -> str:
    """One random fault at objects that were not hit yet, which are added to `hit`."""
    site = dice.choice(sites)
    keys = [info.key for info in site.list("") if info.key not in hit]
    key, other = dice.sample(keys, 2)
    data = bytearray(site.get(key))
    how = dice.choice(["flip", "flip", "flip", "cut", "delete", "swap"])
    if how == "flip":
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        site.put(key, bytes(data))
    elif how == "cut":
        site.put(key, bytes(data[: dice.randrange(len(data))]))
    elif how == "delete":
        site.delete(key)
    else:
        site.put(key, site.get(other))
        site.put(other, bytes(data))
        hit.add(other)
    hit.add(key)
    return f"{how} {key}"


def wrong(settings: Settings, truth: dict[str, tuple[int, bytes]], deleted: bool) -> list[str]:
    """Answers that claim success with other bytes than the truth.

    A run that is gone leaves no trace at its site: then points may lack, and none may differ.
    """
    return [
        path
        for path, (status, body) in answers(settings).items()
        if status == 200
        and body
        and body != truth[path][1]
        and not (deleted and path.endswith("curve") and points(body) <= points(truth[path][1]))
    ]


def points(body: bytes) -> set[str]:
    return {json.dumps(point) for point in json.loads(body)["detections"]}


@pytest.mark.parametrize("faults", CAMPAIGNS)
def test_damage_is_never_served_always_found_and_mended(settings: Settings, faults: int) -> None:
    sites = [open_objects(settings), open_replica(settings)]
    good = [contents(site) for site in sites]
    truth = answers(settings)
    assert {status for status, _ in truth.values()} == {200}
    assert deep_audit(settings, SITES).faults == []
    dice = random.Random(20261122)
    seen: Counter[str] = Counter()
    while sum(seen.values()) < faults:
        hit: set[str] = set()
        done = [damage(dice, sites, hit) for _ in range(EACH_ROUND)]
        deleted = any("delete" in what for what in done)
        seen.update(what.split()[0] for what in done)
        if len(done) * dice.random() < 1:  # starting a reader takes longest
            for store in (settings.store, settings.replica):
                at_site = settings.model_copy(update={"store": store})
                assert wrong(at_site, truth, deleted) == [], done
        result = deep_audit(settings, SITES, repair=True)
        assert hit <= {fault.key for fault in result.faults}, done
        assert result.left == [], done
        for site, objects in zip(sites, good, strict=True):
            assert contents(site) == objects, done
    assert len(seen) == 4


def test_the_campaign_fails_if_one_verification_is_left_out(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bits of an object are flipped behind the back of a scrub that does not verify runs."""
    monkeypatch.setattr("stampede.functions.scrub.verify", lambda objects, info: None)
    objects = open_objects(settings)
    [info, *_] = objects.list("tables/detections/0001")
    data = bytearray(objects.get(info.key))
    data[60] ^= 8  # in a page
    objects.put(info.key, bytes(data))
    assert info.key not in {fault.key for fault in deep_audit(settings, SITES).faults}


def test_what_no_site_has_whole_is_left(settings: Settings) -> None:
    sites = [open_objects(settings), open_replica(settings)]
    [info, *_] = sites[0].list("packs/")
    for site in sites:
        site.put(info.key, site.get(info.key)[:-20])
    result = deep_audit(settings, SITES, repair=True)
    assert {fault[:2] for fault in result.left} >= {("store", info.key), ("replica", info.key)}
