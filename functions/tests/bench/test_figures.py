import pytest

from stampede_bench import report
from stampede_bench.figures import Bound, Figure, Rival, over_rounds, percentile

RATE = Figure("alerts", "stored", 450.0, "/s", Rival("one by one", 150.0), Bound(">=", 300.0))


LATE = Figure("alerts", "p99", 80.0, "ms", None, Bound("<=", 50.0))


def test_a_figure_has_a_ratio_and_is_within_its_bound_or_not() -> None:
    assert (RATE.ratio, RATE.met) == (3.0, True)
    assert (LATE.ratio, LATE.met) == (None, False)
    assert LATE._replace(requirement=None).met is None
    assert RATE._replace(rival=Rival("nothing", 0.0)).ratio is None


def test_a_bound_or_an_aim_may_be_on_the_ratio() -> None:
    least, more = Bound(">=", 2.5, ratio=True), Bound(">=", 4.0, ratio=True)
    figure = RATE._replace(requirement=least, target=more)
    assert (figure.met, figure.on_target, figure.judged) == (True, False, 3.0)
    assert figure._replace(rival=None).met is False
    assert ">= 2.50x: met | >= 4.00x: not met |" in report.row(figure)
    slow = figure._replace(value=500.0, rival=Rival("one by one", 500.0))
    fast = figure._replace(value=400.0, rival=Rival("one by one", 100.0))
    (middle,) = over_rounds([[slow], [figure], [fast]])
    assert (middle.ratio, middle.spread) == (3.0, (400.0, 500.0))


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (50, 50), (99, 99), (100, 100)])
def test_a_percentile_is_one_of_the_values(share: int, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected
    assert percentile([7.0], share) == 7.0


def test_the_median_of_several_rounds_keeps_the_rival_of_its_round() -> None:
    rounds = [
        [RATE._replace(value=value, rival=Rival("one by one", value / 2)), LATE]
        for value in (300.0, 100.0, 200.0)
    ]
    rate, late = over_rounds(rounds)
    assert (rate.value, rate.ratio, rate.spread) == (200.0, 2.0, (100.0, 300.0))
    assert late.spread == (80.0, 80.0)
    assert [figure.spread for figure in over_rounds(rounds[:1])] == [None, None]
