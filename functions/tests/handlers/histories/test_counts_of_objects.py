"""The query of the how-to names objects of which Rubin counted more than is stored."""

import re
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from stampede.store.open import open_objects
from tests.support.alerts.lost_detector import NIGHTS, sent
from tests.support.proofs import bodies, settings_in
from tests.support.store.stored_packets import store

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "alerts-that-never-came.md"


@pytest.mark.long
def test_objects_of_which_more_was_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if histories of the last nights had become so short that they have none of the others."""
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    all_came = settings_in(tmp_path / "all")
    store(all_came, bodies(sent()))
    monkeypatch.chdir(tmp_path / "all" / "store")
    assert duckdb.sql(query).fetchall() == []
    some_lost = settings_in(tmp_path / "some")
    kept = [alert for alert in sent() if alert.mjd < NIGHTS[0]]
    half = len(kept) // 2
    store(some_lost, bodies(kept[:half]))
    store(some_lost, bodies(kept[half:]), first=half)  # with detections of the first half
    for info in (objects := open_objects(all_came)).list("alerts/lsst/"):
        open_objects(some_lost).put(info.key, objects.get(info.key))
    monkeypatch.chdir(tmp_path / "some" / "store")
    found = duckdb.sql(query).fetchall()
    came, counted = (
        Counter(alert.object_id for alert in some if alert.survey == "lsst")
        for some in (kept, sent())
    )
    assert {name: numbers for name, *numbers in found} == {
        name: [counted[name], came[name]] for name in counted if counted[name] > came[name]
    }
    assert found
