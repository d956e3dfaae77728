"""CSV of light curves."""

import pyarrow as pa
import pytest

from stampede.alerts.columns import DETECTION
from stampede.read.formats.light_curves import to_csv
from tests.support.read.read_service import sample_points


@pytest.mark.parametrize("header", [True, False])
def test_an_empty_chunk_adds_nothing(header: bool) -> None:
    """With pyarrow 26.0.1 and without a header it added 400 KB of the memory of the process."""
    rows = pa.Table.from_pylist(sample_points(), DETECTION)
    empty = DETECTION.empty_table()
    for parts in ([empty, rows], [rows, empty], [empty, rows[:3], empty, rows[3:], empty]):
        assert to_csv(pa.concat_tables(parts), header) == to_csv(rows, header)
    lines = to_csv(rows, header).splitlines()
    assert len(lines) == len(rows) + header
    assert not to_csv(pa.concat_tables([empty, empty]), header=False)
