from xml.etree import ElementTree

import pytest

from stampede_bench import chart
from stampede_bench.figures import Bound, Figure, Rival

RATE = Figure("alerts", "stored", 450.0, "/s", Rival("one by one", 150.0), Bound(">=", 300.0))


LATE = Figure("alerts", "p99", 80.0, "ms", None, Bound("<=", 50.0))


def test_a_chart_shows_bounds_and_values() -> None:
    target = Bound(">=", 900.0)
    figures = [
        RATE._replace(target=target),
        LATE,
        LATE._replace(value=0.0, requirement=Bound("<=", 0.0)),
    ]
    assert [chart.share(figure) for figure in figures] == [1.5, 0.625, 1.0]
    ((file, _, picture),) = chart.pictures("ingest", figures)
    assert file == "ingest.svg"
    bars = [each for each in ElementTree.fromstring(picture) if each.tag.endswith("rect")][1:]
    line = float(bars[0].get("x"))  # the required value
    assert [each.get("fill") for each in bars] == [chart.SHORT, chart.BAD, chart.GOOD]
    assert float(bars[1].get("x")) < line
    assert float(bars[1].get("x")) + float(bars[1].get("width")) == pytest.approx(line, abs=0.2)


def test_a_name_that_several_subjects_have_is_a_curve() -> None:
    figures = [
        Figure(f"objects of {size} KiB", name, float(size * factor), "MB/s")
        for size in (4, 64, 1024)
        for name, factor in (("a & b", 1), ("grouped", 3))
    ]
    ((file, title, picture),) = chart.pictures(
        "layout", [*figures, RATE._replace(requirement=None)]
    )
    assert (file, title) == ("layout-0.svg", "layout: MB/s")
    lines = [each for each in ElementTree.fromstring(picture) if each.tag.endswith("polyline")]
    assert len(lines) == 2
    for drawn in lines:
        corners = [tuple(map(float, each.split(","))) for each in drawn.get("points").split()]
        assert len(corners) == 3
        # To the right, and upwards: SVG counts from the top.
        assert corners == sorted(corners, key=lambda corner: (corner[0], -corner[1]))
        assert corners[0][1] > corners[1][1] > corners[2][1]
