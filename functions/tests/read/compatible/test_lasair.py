"""Lasair's routes; client/tests/test_brokers.py asks them by Lasair's own client."""

from urllib.parse import urlencode

import pytest

from tests.support.read.read_service import LSST_OBJECT, Reader

API = "/compatible/lasair/api"
CONE = {"ra": 10, "dec": -5, "radius": 5, "requestType": "all"}


def ask(read: Reader, end: str, asked: dict):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    return read(f"{API}/{end}/", "POST", urlencode(asked).encode(), headers=form)


@pytest.mark.parametrize(
    ("end", "asked", "status", "word"),
    [
        ("cone", CONE | {"requestType": "some"}, 400, "nearest"),
        ("cone", CONE | {"radius": 1001}, 400, "1000"),
        ("cone", CONE | {"radius": ""}, 400, "radius is missing"),
        ("cone", CONE | {"dec": "north"}, 400, "declination"),
        ("cone", CONE | {"limit": 5}, 400, "unknown parameter"),
        ("object", {}, 400, "objectId is missing"),
        ("object", {"objectId": "1.7e17"}, 400, "rounded"),
        ("object", {"objectId": "12"}, 404, "no detection"),
        ("object", {"objectId": LSST_OBJECT, "lite": "maybe"}, 400, "true or false"),
        ("object", {"objectId": LSST_OBJECT, "lasair_added": "maybe"}, 400, "true or false"),
        ("query", {"selected": "*", "tables": "objects", "conditions": "1"}, 501, "SQL"),
    ],
)
def test_what_cannot_be_answered_is_an_error(
    compatible: Reader, end: str, asked: dict, status: int, word: str
) -> None:
    got = ask(compatible, end, asked)
    assert (got.status, got.headers["content-type"]) == (status, "application/problem+json")
    assert word in got.json()["detail"]


def test_a_threshold_leaves_out_detections_that_are_likely_bogus(compatible: Reader) -> None:
    def count(threshold: float) -> int:
        asked = {"objectId": LSST_OBJECT, "reliabilityThreshold": threshold}
        return len(ask(compatible, "object", asked).json()["diaSourcesList"])

    assert [count(0.8), count(0.95)] == [1, 0]
