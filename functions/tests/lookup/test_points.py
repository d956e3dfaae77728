"""Points of light curves in their order."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from stampede.lookup.points import in_time

POINTS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([1.0, 2.0, 2.5, -3.0])))


@given(POINTS)
def test_points_are_sorted_by_object_then_time_and_stay_in_order_else(points: list) -> None:
    points = sorted(points, key=lambda one: one[0])
    rows = pa.table(
        {
            "object_id": pa.array([name for name, _ in points], pa.string()),
            "mjd": pa.array([mjd for _, mjd in points], pa.float64()),
            "number": pa.array(range(len(points)), pa.int64()),
        }
    )
    for some in (rows, rows.filter(pa.array([name == "a" for name, _ in points], pa.bool_()))):
        found = in_time(some).to_pylist()
        assert found == sorted(
            some.to_pylist(), key=lambda row: (row["object_id"], row["mjd"], row["number"])
        )
