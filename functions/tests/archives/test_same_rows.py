"""Parquet and JSON of the same rows give the same points and the same faults."""

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from stampede.archives.importer import Importer, Tally
from stampede.archives.layouts import Asked

SCHEMA = pa.schema(
    [
        ("object_id", pa.string()),
        *((name, pa.float64()) for name in ("ra", "dec")),
        *((name, pa.list_(pa.float64())) for name in ("mjd", "mag", "magerr")),
        ("band", pa.list_(pa.string())),
        ("catflags", pa.list_(pa.int64())),
    ]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "mjd": st.sampled_from([58000.5, 58001.5, 41000.0, 99999.0, None, math.nan]),
    "mag": st.sampled_from([18.0, 17.5, -31.0, 99.0, None, math.nan, math.inf]),
    "magerr": st.sampled_from([0.1, 0.0, -1.0, 99.0, None, math.nan]),
    "band": st.sampled_from(["g", "V", "zr", "q", None]),
    "catflags": st.sampled_from([0, 32768, None]),
}
PLAIN = {
    "object_id": st.sampled_from(["a", "b-1", "no id", "", None]),
    "ra": st.sampled_from([10.0, 360.0, -1.0, None, math.nan]),
    "dec": st.sampled_from([-90.0, 5.0, 91.0, None]),
}


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    """An object with lists, one of which may have another length or be null."""
    length = draw(st.integers(0, 3))
    row = {name: draw(values) for name, values in PLAIN.items()}
    for name, values in VALUES.items():
        row[name] = draw(st.lists(values, min_size=length, max_size=length))
    odd = draw(st.sampled_from([None, None, None, *VALUES]))
    if odd is not None:
        row[odd] = draw(st.sampled_from([None, row[odd][1:]]))
    return row


def imported(file: Path) -> tuple[list[str], Tally]:
    importer = Importer("dr", Asked.of("columns", [], []), 61000.0)
    points = [repr(point) for some in importer.runs([file]) for point in some.to_pylist()]
    return points, importer.tally


@given(st.lists(rows(), min_size=1, max_size=6))
def test_both_give_the_same(some: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        lines, table = Path(folder) / "rows.jsonl", Path(folder) / "rows.parquet"
        lines.write_text("".join(json.dumps(row) + "\n" for row in some))
        pq.write_table(pa.Table.from_pylist(some, SCHEMA), table)
        (points, tally), (others, other) = imported(table), imported(lines)
    assert points == others
    assert (tally.refused, tally.unmeasured) == (other.refused, other.unmeasured)
    told = [sorted(each.fault for each in one.faults) for one in (tally, other)]
    assert told[0] == told[1]
    lengths = [{len(row[name]) for name in VALUES if row[name] is not None} for row in some]
    expected = sum(max(each) if len(each) == 1 else 1 for each in lengths)
    assert len(points) + tally.unmeasured + tally.refused == expected
