import pytest

from stampede_bench import report
from stampede_bench.figures import Bound, Figure, Rival, by_subject, over_rounds, percentile

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


def test_the_median_of_ratios_is_of_a_round_of_its_own() -> None:
    rounds = [
        [RATE._replace(value=value, rival=Rival("one by one", rival), requirement=None)]
        for value, rival in ((4.0, 8.0), (3.0, 3.0), (5.0, 6.25))
    ]
    [by_value], [by_ratio] = over_rounds(rounds), over_rounds(rounds, by_ratio=True)
    assert (by_value.value, by_value.ratio) == (4.0, 0.5)
    assert (by_ratio.value, by_ratio.ratio, by_ratio.spread) == (5.0, 0.8, (3.0, 5.0))


def test_figures_of_a_subject_make_one_table() -> None:
    mixed = [LATE._replace(subject=subject, name=name) for subject, name in ("aw", "bx", "ay")]
    assert [each.subject + each.name for each in by_subject(mixed)] == ["aw", "ay", "bx"]
