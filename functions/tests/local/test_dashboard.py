"""The status of `up`, as text."""

from stampede.handlers.audit.status import View
from stampede_local.dashboard import line


def test_the_status_names_objects_in_quarantine() -> None:
    key = f"tables/detections/0001-{32 * '0'}.parquet"
    assert line(View({}, [], {}, [key])) == f"in quarantine: {key}"
    assert line(View({}, [], {}, [])) == ""
