import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stampede.errors import SetupError
from stampede_bench import chart, report
from stampede_bench.figures import Figure, Must, Rival, over_rounds, percentile
from stampede_bench.registry import BENCHMARKS, measure_of

RATE = Figure("alerts", "stored", 450.0, "/s", Rival("one by one", 150.0), Must(">=", 300.0))
LATE = Figure("alerts", "p99", 80.0, "ms", None, Must("<=", 50.0))


def test_a_figure_knows_its_ratio_and_whether_it_is_as_it_must_be() -> None:
    assert (RATE.ratio, RATE.met) == (3.0, True)
    assert (LATE.ratio, LATE.met) == (None, False)
    assert LATE._replace(must=None).met is None
    assert RATE._replace(rival=Rival("nothing", 0.0)).ratio is None


def test_what_is_asked_may_be_the_ratio_and_more_may_be_hoped_for() -> None:
    least, more = Must(">=", 2.5, ratio=True), Must(">=", 4.0, ratio=True)
    figure = RATE._replace(must=least, aim=more)
    assert (figure.met, figure.aimed, figure.judged) == (True, False, 3.0)
    assert figure._replace(rival=None).met is False
    assert ">= 2.50x: met | >= 4.00x: not met |" in report.row(figure)
    slow = figure._replace(value=500.0, rival=Rival("one by one", 500.0))
    fast = figure._replace(value=400.0, rival=Rival("one by one", 100.0))
    (middle,) = over_rounds([[slow], [figure], [fast]])
    assert (middle.ratio, middle.spread) == (3.0, (400.0, 500.0))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.00123, "0.0012"), (-1.234, "-1.23"), (12.34, "12.3"), (1234.5, "1,234")],
)
def test_a_number_has_the_digits_that_count(value: float, text: str) -> None:
    assert report.number(value) == text


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (50, 50), (99, 99), (100, 100)])
def test_a_percentile_is_one_of_the_values(share: int, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected
    assert percentile([7.0], share) == 7.0


def test_of_several_rounds_the_median_stays_with_its_own_rival() -> None:
    rounds = [
        [RATE._replace(value=value, rival=Rival("one by one", value / 2)), LATE]
        for value in (300.0, 100.0, 200.0)
    ]
    rate, late = over_rounds(rounds)
    assert (rate.value, rate.ratio, rate.spread) == (200.0, 2.0, (100.0, 300.0))
    assert late.spread == (80.0, 80.0)
    assert [figure.spread for figure in over_rounds(rounds[:1])] == [None, None]


def test_the_report_says_what_was_missed(tmp_path: Path) -> None:
    about = {
        "when": "2026-03-01T00:00:00+00:00",
        "machine": {"processor": "abacus", "cores": 2, "memory_gb": 8.0, "load_before": 0.5},
        "versions": {"python": "3.11"},
    }
    found = {"ingest": [RATE, LATE]}
    report.write(tmp_path, report.document(about, "stampede bench ingest", found), found)
    rate, late = json.loads((tmp_path / "bench.json").read_text())["figures"]
    assert (rate["ratio"], rate["met"], late["met"]) == (3.0, True, False)
    assert rate["command"] == "stampede bench ingest"
    text = (tmp_path / "bench.md").read_text()
    assert "| stored | 450 | /s |  | one by one: 150 | 3.00 | >= 300: met |" in text
    assert "**missed**" in text
    assert "1 of 2 musts met\n" in text
    assert "| ingest | alerts | stored | 450 | /s |" in text
    aimed = RATE._replace(aim=Must(">=", 400.0))
    assert report.verdict({"a": [aimed], "b": [LATE]}) == "1 of 2 musts met, 1 of 1 aims"
    assert report.asked({"a": [LATE._replace(must=None)]}) == []
    (shown,) = re.findall(r"!\[.*\]\((.*)\)", text)
    assert (tmp_path / shown).read_text().startswith("<svg")


def test_a_picture_shows_what_must_be_and_what_was_found() -> None:
    aim = Must(">=", 900.0)
    figures = [RATE._replace(aim=aim), LATE, LATE._replace(value=0.0, must=Must("<=", 0.0))]
    assert [chart.share(figure) for figure in figures] == [1.5, 0.625, 1.0]
    ((file, _, picture),) = chart.pictures("ingest", figures)
    assert file == "ingest.svg"
    bars = [each for each in ElementTree.fromstring(picture) if each.tag.endswith("rect")][1:]
    line = float(bars[0].get("x"))  # of what must be
    assert [each.get("fill") for each in bars] == [chart.SHORT, chart.BAD, chart.GOOD]
    assert float(bars[1].get("x")) < line
    assert float(bars[1].get("x")) + float(bars[1].get("width")) == pytest.approx(line, abs=0.2)


def test_what_several_subjects_have_is_a_curve() -> None:
    figures = [
        Figure(f"objects of {size} KiB", name, float(size * factor), "MB/s")
        for size in (4, 64, 1024)
        for name, factor in (("a & b", 1), ("grouped", 3))
    ]
    ((file, what, picture),) = chart.pictures("pack-size", [*figures, RATE._replace(must=None)])
    assert (file, what) == ("pack-size-0.svg", "pack-size: MB/s")
    lines = [each for each in ElementTree.fromstring(picture) if each.tag.endswith("polyline")]
    assert len(lines) == 2
    for drawn in lines:
        corners = [tuple(map(float, each.split(","))) for each in drawn.get("points").split()]
        assert len(corners) == 3
        # To the right, and upwards: SVG counts from the top.
        assert corners == sorted(corners, key=lambda corner: (corner[0], -corner[1]))
        assert corners[0][1] > corners[1][1] > corners[2][1]


def test_every_benchmark_that_is_named_can_be_run() -> None:
    assert all(callable(measure_of(name)) for name in BENCHMARKS)
    with pytest.raises(SetupError, match="no benchmark 'moon': there are decode, "):
        measure_of("moon")
