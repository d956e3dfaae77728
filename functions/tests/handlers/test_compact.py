"""compact: an event starts a pass, whose metrics show levels and bytes; no table stops others."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from stampede.alerts import columns
from stampede.config.settings import Settings
from stampede.deadletters.dead_letter import write_letters
from stampede.errors import StoreDown
from stampede.handlers.compact import Compactor, compact_tables
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.runs.schema import ALL_TABLES, CUTOUTS
from stampede.store.tables.table import Table
from tests.support.events.dead_letters import accept, event, put_letters
from tests.support.served import metrics
from tests.support.store.watched_objects import Forwarding


class LacksOne(Forwarding):
    """A store that does not list one table."""

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        if prefix == f"tables/{next(iter(ALL_TABLES))}/":
            raise StoreDown(prefix)
        return super().list(prefix, after)


def passes(outcome: str) -> float:
    labels = {"outcome": outcome}
    return REGISTRY.get_sample_value("stampede_compact_passes_total", labels) or 0.0


def test_a_table_that_cannot_be_compacted_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(store=f"file://{tmp_path}/store", fanout=4)
    objects = open_objects(settings)
    for spec in ALL_TABLES.values():
        for n in range(4):
            rows = spec.schema.empty_table()
            Table(objects, spec, threads=1).append(rows, Coverage.of({("t", 0): [n]}))
    for n in range(2):
        objects.put(*write_letters("cutouts", [event(n)]))
    monkeypatch.setattr("stampede.deadletters.merge.MOST_OBJECTS", 1)
    monkeypatch.setattr("stampede.handlers.compact.open_objects", lambda _: LacksOne(objects))
    before = passes("store-down")
    with pytest.raises(StoreDown):
        compact_tables(settings)
    assert passes("store-down") == before + 1
    for number, spec in enumerate(ALL_TABLES.values()):
        runs = Table(objects, spec, threads=1).runs()
        assert [run.name.level for run in runs] == ([1] if number else [0] * 4)
    assert len(list(objects.list("deadletters/cutouts/"))) == 1


def letters(table: str) -> dict[str, float | None]:
    """How many offsets of dead letters the metrics show, by state."""
    return {
        state: REGISTRY.get_sample_value("stampede_dead_letters", {"table": table, "state": state})
        for state in ("refused", "accepted")
    }


def test_a_pass_counts_refused_and_accepted_dead_letters(tmp_path: Path) -> None:
    settings = Settings(store=f"file://{tmp_path}/store")
    objects = open_objects(settings)
    compactor = Compactor(settings)
    compactor.make_pass()
    assert letters("cutouts") == {"refused": 0, "accepted": 0}
    put_letters(objects, *map(event, range(5)))
    put_letters(objects, event(7), table="detections")
    compactor.make_pass()
    assert letters("cutouts") == {"refused": 5, "accepted": 0}
    accept(objects, "cutouts/alerts/0/1", "cutouts/alerts/0/3")
    compactor.make_pass()
    assert letters("cutouts") == {"refused": 3, "accepted": 2}
    assert letters("detections") == {"refused": 1, "accepted": 0}
    accept(objects, "cutouts/alerts/0/3", undo=True)
    compactor.make_pass()
    assert letters("cutouts") == {"refused": 4, "accepted": 1}


@pytest.mark.integration
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
    assert float(shown['stampede_compact_passes_total{outcome="done"}']) == 1
    assert float(shown["stampede_runs" + of % 0]) == 0
    assert float(shown["stampede_runs" + of % 1]) == 2
    size = sum(part.object.size for part in table.runs())
    assert float(shown["stampede_run_bytes" + of % 1]) == size
    assert float(shown['stampede_compacted_bytes_total{table="cutouts"}']) == size
    assert float(shown['stampede_compacted_new_bytes_total{table="cutouts"}']) > size / 8
