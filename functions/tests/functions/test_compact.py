"""compact, as a process: an event starts a pass, whose metrics show levels and bytes."""

import re

import pytest

from stampede.alerts import columns
from stampede.store.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.schema import CUTOUTS
from stampede.store.tables import Table
from tests.support.served import metrics

pytestmark = pytest.mark.integration


def test_a_pass_merges_and_shows_levels_and_bytes(serve) -> None:
    served = serve("compact", FANOUT=4)
    table = Table(open_objects(served.settings), CUTOUTS)
    for n in range(8):
        row = {"alert_id": n, "survey": "ztf", "kind": "science", "object_id": "a", "mjd": 6e4}
        rows = columns.CUTOUT_LOCATION.empty_table().from_pylist([row], columns.CUTOUT_LOCATION)
        table.append(rows, Coverage.of({("t", 0): [n]}))
    assert served.post(1, b"{}").status == 204

    table.refresh()
    assert {part.name.level for part in table.runs()} == {1}
    assert table.coverage().intervals("t", 0) == [(0, 8)]
    shown = dict(re.findall(r"^(stampede_\w+\{.*?\}) (\S+)$", metrics(served).decode(), re.M))
    of = '{level="%d",table="cutouts"}'
    assert float(shown["stampede_runs" + of % 0]) == 0
    assert float(shown["stampede_runs" + of % 1]) == 2
    size = sum(part.object.size for part in table.runs())
    assert float(shown["stampede_run_bytes" + of % 1]) == size
    assert float(shown['stampede_compacted_bytes_total{table="cutouts"}']) == size
    assert float(shown['stampede_compacted_new_bytes_total{table="cutouts"}']) > size / 8
