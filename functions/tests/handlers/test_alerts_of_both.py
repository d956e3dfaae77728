"""`alerts` as a process: each alert is decoded once and stored in both tables."""

import json

import pyarrow as pa
import pytest

from stampede.errors import StoreDown, Undecodable, Unusable
from stampede.handlers import alerts
from stampede.handlers.alerts import combined
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, PACKETS
from stampede.store.tables.table import Table
from stampede_local.demo import oracle
from tests.support.alerts import made_alerts
from tests.support.alerts.hostile_alerts import HOSTILE
from tests.support.served import metrics

BAD_IMAGE = made_alerts.confluent(
    made_alerts.rubin_record(1101, 3) | {"cutoutScience": b"GIF89a"}, 1101
)
FUTURE = made_alerts.rubin_record(1101, 5)["diaSource"] | {"midpointMjdTai": 999999.0}
BAD_HISTORY = made_alerts.confluent(
    made_alerts.rubin_record(1101, 4) | {"prvDiaSources": [FUTURE]}, 1101
)


def lsst(seed: int) -> bytes:
    return made_alerts.confluent(made_alerts.rubin_record(1101, seed), 1101)


def stored(served, messages: list[bytes]) -> dict[str, int]:
    """How many of these alerts each table has."""
    ids = [oracle.head(message)["alert_id"] for message in messages]
    objects = open_objects(served.settings)
    found = {}
    for spec in (CUTOUTS, PACKETS):
        places = Table(objects, spec).lookup(ids)
        found[spec.name] = len(set(places["alert_id"].to_pylist()))
    return found


def coverage(served, spec) -> list[tuple[int, int]]:
    table = Table(open_objects(served.settings), spec)
    table.refresh()
    return table.coverage().intervals("alerts", 0)


@pytest.mark.integration
def test_both_tables_have_each_alert(serve) -> None:
    served = serve("alerts")
    messages = [lsst(seed) for seed in range(5)] + [made_alerts.ztf_alert(c) for c in range(1, 5)]
    replies = [served.post(*numbered).status for numbered in enumerate(messages)]
    assert replies == [204] * len(messages)
    assert stored(served, messages) == {"cutouts": 9, "packets": 9}
    for spec in (CUTOUTS, DETECTIONS, PACKETS):
        assert coverage(served, spec) == [(0, 9)]
    lines = metrics(served).decode()
    for stage in ("decode", "pack", "packets", "run"):  # of both, and one decoding
        assert f'stampede_flush_stage_seconds_total{{function="alerts",stage="{stage}"}}' in lines


@pytest.mark.integration
@pytest.mark.parametrize(
    ("message", "lacks", "has"),
    [(BAD_IMAGE, "cutouts", DETECTIONS), (BAD_HISTORY, "detections", CUTOUTS)],
)
def test_an_alert_may_be_refused_by_one_table_alone(serve, message, lacks: str, has) -> None:
    """The response names that table; the other one has the alert."""
    served = serve("alerts")
    response = served.post(7, message)
    assert (response.status, json.loads(response.data)["tables"]) == (422, [lacks])
    assert coverage(served, has) == [(7, 8)]
    other = CUTOUTS if has is DETECTIONS else DETECTIONS
    assert coverage(served, other) == []


@pytest.mark.integration
def test_an_event_may_be_for_one_table_alone(serve) -> None:
    served = serve("alerts")
    assert served.post(0, lsst(1), "/cutouts").status == 204
    assert served.post(1, lsst(2), "/detections").status == 204
    assert served.post(2, BAD_IMAGE, "/detections").status == 204
    assert (coverage(served, CUTOUTS), coverage(served, DETECTIONS)) == ([(0, 1)], [(1, 3)])
    response = served.post(3, lsst(3), "/positions")
    assert response.status == 404  # a wrong address is no fault of the alert
    assert "/cutouts" in json.loads(response.data)["detail"]


@pytest.mark.integration
def test_an_alert_that_kills_workers_is_refused_by_both(serve) -> None:
    served = serve("alerts")
    response = served.post(0, next(iter(HOSTILE.values()))())
    document = json.loads(response.data)
    assert 400 <= response.status < 500
    assert "tables" not in document
    assert served.post(1, lsst(1)).status == 204


def test_what_may_pass_comes_before_what_stays() -> None:
    """An alert that is sent again is refused then; one that is refused is not sent again."""
    assert combined({"cutouts": None, "detections": None}) is None
    both = combined({"cutouts": Undecodable("a"), "detections": StoreDown("b")})
    assert (type(both), both.tables) == (StoreDown, ())
    alone = combined({"cutouts": Unusable("a"), "detections": None})
    assert (type(alone), alone.message, alone.tables) == (Unusable, "a", ("cutouts",))
    same = combined({"cutouts": Undecodable("a"), "detections": Undecodable("a")})
    assert (same.message, same.tables) == ("a", ())


def test_a_store_that_is_down_is_no_fault_of_an_alert() -> None:
    """Both tables are written at once; the failure that is no alert's fault is raised."""

    def fail(error: Exception):
        def write(*_: object):
            raise error

        return write

    for one, other in ((KeyError("x"), StoreDown("y")), (StoreDown("y"), KeyError("x"))):
        with pytest.raises(StoreDown):
            alerts._write_both(None, alerts.DecodedAlerts(None, None), fail(one), fail(other))
    with pytest.raises(pa.ArrowMemoryError):
        alerts._write_both(
            None,
            alerts.DecodedAlerts(None, None),
            fail(ValueError("x")),
            fail(pa.ArrowMemoryError("y")),
        )
