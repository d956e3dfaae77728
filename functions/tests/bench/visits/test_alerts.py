import pytest

from stampede_bench.visits.alerts import VisitAlerts, simulate
from stampede_local.demo.oracle import read_record


@pytest.fixture(scope="module")
def simulated() -> list:
    return [*simulate(detectors=2, rows=10, each=3)]


def test_each_detector_gives_alerts_of_one_exposure(simulated: list) -> None:
    exposures = [(alert.points[0].visit, alert.points[0].detector) for alert in simulated]
    assert len(set(exposures[:3])) == len(set(exposures[3:])) == 1
    assert exposures[0] != exposures[3]
    assert max(len(alert.points) for alert in simulated) > 10


def test_a_copy_has_ids_of_its_own_and_nothing_else(simulated: list) -> None:
    alerts = VisitAlerts(simulated)
    numbers = [0, 1, 5, 6, 600_000]
    assert len({alerts.message(number) for number in numbers}) == len(numbers)
    for number in numbers:
        ids, source = alerts.ids(number), simulated[number % 6]
        _, record = read_record(alerts.message(number))
        _, expected = read_record(source.body)
        assert record["diaSourceId"] == record["diaSource"]["diaSourceId"] == ids.alert
        history = (record["prvDiaSources"] or []) + (record["prvDiaForcedSources"] or [])
        for row in [record["diaSource"], record["diaObject"], *history]:
            assert row["diaObjectId"] == ids.object
        for one in (record, expected):
            one["diaSourceId"] = one["diaSource"]["diaSourceId"] = 0
            rows = (one["prvDiaSources"] or []) + (one["prvDiaForcedSources"] or [])
            for row in [one["diaSource"], one["diaObject"], *rows]:
                row["diaObjectId"] = 0
        assert repr(record) == repr(expected)  # NaN is not equal to itself
    mean = sum(len(alerts.message(number)) for number in range(6)) / 6
    assert alerts.mean_bytes == pytest.approx(mean)


def test_too_long_a_history_is_an_error() -> None:
    with pytest.raises(ValueError, match="rows must be 1 to 2000, not 5000"):
        [*simulate(1, 5000, each=3)]
