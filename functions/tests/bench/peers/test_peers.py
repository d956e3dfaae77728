import json
import urllib.request

import pytest

from stampede.alerts.framing import built_in_schema
from stampede_bench.figures import Figure
from stampede_bench.peers.objects import BEFORE, LEVELS, key
from stampede_bench.peers.peers import noted, told
from stampede_bench.peers.rubin_ingester import registry


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_without_checkouts_the_floor_stands_beside_stampede(measure) -> None:
    found = measure("peers")
    cpu = {name: one for (what, name), one in found.items() if what.startswith("CPU of all proc")}
    assert {"Stampede", BEFORE, *LEVELS, "Stampede: an LSST cutout", "Stampede: a ZTF cutout"} < {
        *cpu
    }
    assert "Left out, as no --peer gives a checkout" in cpu["Stampede"].note
    assert all(one.value > 0 for one in cpu.values())
    asked = {name: one.value for (what, name), one in found.items() if what.startswith("requests")}
    floor = {f"{title}: PUT": 1000 for title in (BEFORE, *LEVELS)}
    assert {name: each for name, each in asked.items() if "Stampede" not in name} == floor
    stored = {name: one for (what, name), one in found.items() if what.startswith("bytes, stored")}
    levels = [stored[f"an object an alert, gzip {level}"].value for level in (9, 6, 1)]
    assert levels == sorted(levels)
    assert stored[BEFORE].value == levels[0]
    sizes = {name: one.value for (what, name), one in found.items() if "of an answer" in what}
    assert sizes["Stampede: an LSST cutout"] % 2880 == 0  # FITS is made of such blocks


def test_the_registry_has_the_schema_as_text() -> None:
    with registry() as url, urllib.request.urlopen(f"{url}/schemas/ids/1101", timeout=10) as answer:
        found = json.loads(json.loads(answer.read())["schema"])
    assert found == built_in_schema(1101)


def test_the_key_of_an_alert_is_that_of_rubins_archive() -> None:
    assert key(170_032_915_988_086_813) == "v2/alerts/170032/170032915988086813.avro.gz"


def test_notes_stand_with_the_first_figure_of_a_system() -> None:
    figures = [Figure(what, name, 1.0, "s") for what in "ab" for name in ("ours", "theirs")]
    found = [one.note for one in noted(iter(figures), {"theirs": "changed."}, told({}))]
    missing = "rubin-ingester, rubin-server, fink"
    assert found == [
        f"Left out, as no --peer gives a checkout: {missing}.",
        "changed.",
        "",
        "",
    ]
