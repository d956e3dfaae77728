import json
from pathlib import Path

import pytest

from stampede.errors import StampedeError
from stampede_bench.ingestion.ingest import HISTORY
from stampede_bench.instruments import load
from stampede_bench.peers.checkout import PEERS, Checkout
from stampede_bench.peers.versions.alerts import Wanted, sent, simulated
from stampede_bench.peers.versions.reading import items
from tests.support.checkouts import with_python

FUNCTIONS = Path(__file__).parents[4]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """This version, as if it were an earlier one."""
    (tmp_path / "functions").symlink_to(FUNCTIONS)
    with_python(tmp_path)
    return Checkout(PEERS["stampede"], tmp_path, "f46e236")


@pytest.mark.nightly
def test_the_simulator_of_a_checkout_makes_the_alerts_of_both(checkout: Checkout) -> None:
    [found] = simulated(checkout, checkout.path, [Wanted("ztf", 2, 3, 2)])
    assert found.whole == load.simulated("ztf", 8, HISTORY["ztf"], 20)
    assert [found.warm, *found.rounds] == [
        found.whole.messages[:2],
        found.whole.messages[2:5],
        found.whole.messages[5:],
    ]
    asked = items(found)
    assert [(item.alert_id, item.object_id) for item in asked] == found.whole.ids
    assert all(0 <= item.ra < 360 and -90 <= item.dec <= 90 for item in asked)


def test_a_simulator_that_fails_says_why(checkout: Checkout) -> None:
    Path(checkout.python).write_text("#!/bin/sh\necho no room >&2; exit 1\n")
    with pytest.raises(StampedeError, match="Stampede at f46e236 simulates no alerts: no room"):
        [*simulated(checkout, checkout.path, [Wanted("ztf", 1, 1, 1)])]


def test_too_few_alerts_are_an_error(tmp_path: Path) -> None:
    about = {"description": "made", "sizes": [2, 3], "ids": [[1, "a"], [2, "b"]]}
    (tmp_path / "lsst.json").write_text(json.dumps(about))
    (tmp_path / "lsst.avro").write_bytes(b"aabbb")
    assert sent(tmp_path, Wanted("lsst", 1, 1, 1)).rounds == [[b"bbb"]]
    with pytest.raises(StampedeError, match="only 2 of 3 alerts were simulated"):
        sent(tmp_path, Wanted("lsst", 1, 1, 2))
