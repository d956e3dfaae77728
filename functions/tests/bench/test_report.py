import json
import re
from pathlib import Path

import pytest

from stampede_bench import report
from stampede_bench.figures import Bound, Figure, Rival

RATE = Figure("alerts", "stored", 450.0, "/s", Rival("one by one", 150.0), Bound(">=", 300.0))


LATE = Figure("alerts", "p99", 80.0, "ms", None, Bound("<=", 50.0))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.00123, "0.0012"), (-1.234, "-1.23"), (12.34, "12.3"), (1234.5, "1,234")],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert report.number(value) == text


def test_the_report_marks_missed_bounds(tmp_path: Path) -> None:
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
    assert "1 of 2 requirements met\n" in text
    assert "| ingest | alerts | stored | 450 | /s |" in text
    on_target = RATE._replace(target=Bound(">=", 400.0))
    assert (
        report.verdict({"a": [on_target], "b": [LATE]}) == "1 of 2 requirements met, 1 of 1 targets"
    )
    assert report.bounds_table({"a": [LATE._replace(requirement=None)]}) == []
    (shown,) = re.findall(r"!\[.*\]\((.*)\)", text)
    assert (tmp_path / shown).read_text().startswith("<svg")


def test_notes_stand_below_the_table_of_their_figure() -> None:
    about = {
        "when": "2026-03-01T00:00:00+00:00",
        "machine": {"processor": "abacus", "cores": 2, "memory_gb": 8.0, "load_before": 0.5},
        "versions": {"python": "3.11"},
        "command": "stampede bench peers",
    }
    found = {"peers": [RATE._replace(note="changed: no TLS."), LATE._replace(subject="others")]}
    *_, table, others = report.markdown(about, found).split("### ")
    assert table.endswith("\n\n- stored: changed: no TLS.\n\n")
    assert "- " not in others.replace("---", "")
