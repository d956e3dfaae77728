"""`tools/rewrites.py`: the model of merges that decision record 80 goes by."""

import runpy
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "rewrites.py"


@pytest.fixture(scope="module")
def tool() -> dict:
    return runpy.run_path(str(TOOL))


def test_the_model_merges_what_compact_merges(tool) -> None:
    tool["check"](20)


def test_repeats_are_dropped_only_where_nights_meet(tool) -> None:
    within = tool["Run"](1, 0, tool["NIGHT"], 0)
    across = tool["Run"](1, 0, 8 * tool["NIGHT"], 0)
    assert within.rows == pytest.approx(tool["NIGHT"] * tool["HISTORY"])
    # Nearly all objects have an alert in eight nights: their histories are there once.
    objects = tool["OBJECTS"] * (1 - (1 - tool["CHANCE"]) ** 8)
    new = (8 * tool["NIGHT"] - objects) * tool["NEW"]
    assert across.rows == pytest.approx(objects * tool["HISTORY"] + new)


def test_fewer_merges_write_less_and_leave_more_runs(tool) -> None:
    written, runs = [], []
    for plan in (8,), (64, 8):
        played = tool["Played"](plan)
        for _ in range(512 + 63):
            played.append()
            played.compact()
        written.append(sum(played.written.values()))
        runs.append(len(played.runs()))
    assert written[1] < 0.7 * written[0]
    assert runs[1] == 1 + 63 > runs[0] == 1 + 7 + 7
