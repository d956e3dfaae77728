"""Packs of cutouts: those of a batch of many nights, as an archive sends them."""

import re
from pathlib import Path

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.packs.kinds import read_named
from stampede.store.packs.pack_name import PackName
from tests.support.alerts.mixed_programmes import NIGHT, mixed_alert
from tests.support.read.html_page import html
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store, ztf_with_images

FIRST = 59396


def test_a_pack_has_the_alerts_of_one_night(tmp_path: Path) -> None:
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path)
    nights = [FIRST + number * 7 % 5 for number in range(12)]
    alerts = [ztf_with_images(n + 1, night + 0.25) for n, night in enumerate(nights)]
    store(settings, alerts)
    objects = open_objects(settings)
    seen: dict[int, list[int]] = {}
    covered = []
    for info in objects.list("packs/"):
        pack, coverage = read_named(objects.get(info.key), info.key)
        night = PackName.parse(info.key).night
        assert night not in seen
        seen[night] = sorted(set(pack.locations["alert_id"].to_pylist()))
        assert len(coverage) == len(seen[night])
        covered.append(coverage)
    assert seen == {
        night: [n + 1 for n, other in enumerate(nights) if other == night]
        for night in sorted({*nights})
    }
    assert len(Coverage.union(covered)) == len(alerts)
    for read in serving(make_app(settings)):
        text = html(read("/nights/2021-07-01"))[1]
        assert sorted(map(int, re.findall(r'id="alert-(\d+)"', text))) == seen[FIRST]
        assert "of the latest one" not in text


def test_a_pack_has_the_alerts_of_one_programme_and_night(tmp_path: Path) -> None:
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path, ztf_programids="1,2,3")
    alerts = [
        mixed_alert(1),
        mixed_alert(2, own=2),
        ztf_with_images(3, NIGHT + 0.3),
        mixed_alert(4),
    ]
    store(settings, [*alerts, ztf_with_images(5, NIGHT - 1)])
    objects = open_objects(settings)
    found = {}
    for info in objects.list("packs/"):
        name = PackName.parse(info.key)
        pack, _ = read_named(objects.get(info.key), info.key)
        found[name.night, *name.programids] = sorted({*pack.locations["alert_id"].to_pylist()})
    assert found == {(NIGHT, 1): [1, 3, 4], (NIGHT, 2): [2], (NIGHT - 1, 1): [5]}
