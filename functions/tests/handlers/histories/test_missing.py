"""Causes, of rows made by hand: one detection that did not come beside many that did."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stampede.alerts.columns import DETECTION
from stampede.handlers.histories.causes import Cause, Known
from stampede.handlers.histories.missing import COLUMNS, Window
from tests.support.store import rows as made

NIGHT, NOW = 61_000, 61_100.0
CAME = range(1, 9)
Row = dict[str, Any]


def row(number: int, survey: str = "ztf", **values: Any) -> Row:
    found = made.detection("object", number)
    found |= {"survey": survey, "mjd": NIGHT + 0.5, "visit": 7, "detector": 3, "rb": 0.7}
    found |= {"processed_mjd": NIGHT + 0.5, "programid": 1 if survey == "ztf" else None}
    return found | values


def groups(
    *rows: Row, first: float = NIGHT, now: float = NOW, stored: frozenset[int] | None = None
):
    window = Window(NIGHT - 30, NIGHT + 200, {"ztf": np.array(CAME)})
    for each in rows:  # in any order, one by one
        window.add(pa.Table.from_pylist([each], DETECTION).select(COLUMNS))
    known = Known({"ztf": first}, stored, now)
    window.learn(known)
    return list(window.groups(window.missing(known), 2))


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({}, Cause.UNEXPLAINED),
        ({"rb": None}, Cause.UNEXPLAINED),
        ({"rb": 0.66}, Cause.UNEXPLAINED),
        ({"rb": 0.64}, Cause.CUT),
        ({"programid": 2}, Cause.PROGRAMME),
        ({"withdrawn": True}, Cause.REPROCESSED),
        ({"processed_mjd": NIGHT + 3.0}, Cause.REPROCESSED),
        ({"mjd": NIGHT - 0.1}, Cause.BEFORE),
        ({"mjd": NOW - 0.5}, Cause.ON_ITS_WAY),
        ({"survey": "lsst"}, Cause.BEFORE),
    ],
)
def test_causes(values: Row, cause: Cause) -> None:
    came = [row(number, rb=0.66 + number / 100) for number in CAME]
    [group] = groups(*came, row(99) | values)
    assert (group.cause, group.missing, group.ids) == (cause, 1, [99])
    assert (group.visit, group.detector, group.objects) == (7, 3, ["object"])
    assert group.came == (8 if group.night == NIGHT and group.survey == "ztf" else 0)


def test_forced_points_and_limits_are_no_alerts() -> None:
    assert groups(*map(row, CAME), row(98, forced=True), row(99, limit=True)) == []


def test_a_programme_that_is_not_stored_any_more() -> None:
    rows = [*(row(number, programid=2) for number in CAME), row(99, programid=2)]
    assert [each.cause for each in groups(*rows)] == [Cause.UNEXPLAINED]
    assert [each.cause for each in groups(*rows, stored=frozenset({1}))] == [Cause.PROGRAMME]


def test_a_cut_is_that_of_the_last_nights() -> None:
    """Eleven nights ago the survey sent all."""
    came = [row(1, rb=0.1, mjd=NIGHT + 0.5), row(2, rb=0.5, mjd=NIGHT + 11.5)]
    causes = {
        ago: groups(*came, row(99, rb=0.4, mjd=NIGHT + 11.5 - ago))[0].cause for ago in (0, 2)
    }
    assert causes == {0: Cause.CUT, 2: Cause.UNEXPLAINED}


def test_versions_of_a_detection_are_one() -> None:
    """The earliest processing counts: later alerts bring a detection again."""
    again = [row(99, processed_mjd=NIGHT + 0.5 + days) for days in (3, 0, 9)]
    for rows in (again, again[::-1]):
        [group] = groups(*map(row, CAME), *rows)
        assert (group.cause, group.missing, group.ids) == (Cause.UNEXPLAINED, 1, [99])


def test_explained_ids_are_a_few_and_unexplained_ones_are_all() -> None:
    rows = [row(number, rb=rb) for number in range(100, 105) for rb in [0.7]]
    low = [row(number, rb=0.1) for number in range(200, 205)]
    [cut, lost] = groups(*map(row, CAME), *rows, *low)
    assert (cut.cause, cut.missing, cut.ids) == (Cause.CUT, 5, [200, 201])
    assert (lost.cause, lost.missing, lost.ids) == (Cause.UNEXPLAINED, 5, [*range(100, 105)])
