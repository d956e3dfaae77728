"""Merged raw alerts: the same rows as before, in fewer files."""

import time
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from stampede.config.settings import Settings
from stampede.handlers.compact import compact_tables
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.scrub.scrubber import Fault, Scrub, Site
from stampede.runtime.clock import now_mjd
from stampede.store.open import open_objects
from stampede.store.packs.raw_alerts import (
    Input,
    merge_raw,
    merged_inputs,
    read_raw,
    same_rows,
    write_raw,
)
from tests.handlers.merges.passes import run_merges
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.store.stored_packets import store, ztf_with_images

NIGHT = int(now_mjd()) - 40
BATCHES, ALERTS = 4, 3
SOON = 1e-7  # days


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        store=f"file://{tmp_path}/store", spool=tmp_path, orphan_days=SOON, merge_days=0
    )


def fill(settings: Settings, batches: Iterable[int] = range(BATCHES)) -> None:
    for batch in batches:
        numbers = range(1 + batch * ALERTS, 1 + (batch + 1) * ALERTS)
        messages = [ztf_with_images(n, NIGHT + 0.2 + n / 1e4) for n in numbers]
        store(settings, messages, batch * ALERTS)


def merge(settings: Settings, passes: int = 2) -> None:
    for _ in range(passes):
        time.sleep(0.02)  # longer than `SOON`
        run_merges(settings)


def files(settings: Settings) -> list[str]:
    return [info.key for info in open_objects(settings).list("alerts/")]


def rows(settings: Settings) -> list[tuple]:
    """What DuckDB finds, by the query of docs/store.md."""
    path = settings.store.removeprefix("file://")
    return duckdb.sql(
        f"SELECT * FROM read_parquet('{path}/alerts/ztf/*/*/*.parquet', union_by_name = true) "
        "ORDER BY candid"
    ).fetchall()


def faults(settings: Settings) -> list[Fault]:
    found: list[Fault] = []
    Scrub(Site.of(settings, "store", open_objects(settings)), found.append).run()
    return found


def test_readers_find_what_was_stored(settings: Settings) -> None:
    fill(settings)
    before = rows(settings)
    assert len(before) == BATCHES * ALERTS
    merge(settings.model_copy(update={"orphan_days": 7}), 1)
    assert len(files(settings)) == BATCHES + 1
    assert len(rows(settings)) == 2 * len(before)  # each twice, as after a resend
    merge(settings)
    [merged] = files(settings)
    assert "/merged1-" in merged
    assert rows(settings) == before
    assert faults(settings) == []


def test_late_alerts_are_merged_with_those_before(settings: Settings) -> None:
    fill(settings)
    merge(settings)
    fill(settings, [BATCHES])
    merge(settings)
    [merged] = files(settings)
    assert "/merged2-" in merged
    assert len(rows(settings)) == (BATCHES + 1) * ALERTS


def test_compact_merges_raw_alerts(settings: Settings) -> None:
    fill(settings)
    compact_tables(settings)
    assert sum("/merged1-" in key for key in files(settings)) == 1


@pytest.mark.parametrize(
    "off", [{"merge_seconds": 0}, {"orphan_days": 0}, {"merge_days": 60}, {"merge_days": 0.01}]
)
def test_it_can_be_switched_off(settings: Settings, off: dict[str, float]) -> None:
    fill(settings)
    before = files(settings)
    merge(settings.model_copy(update=off))
    assert files(settings) == before


def test_nothing_is_deleted_for_a_damaged_file(settings: Settings) -> None:
    """It is written anew, and only then its inputs go."""
    fill(settings)
    before = rows(settings)
    merge(settings, 1)
    objects = open_objects(settings)
    [merged] = [key for key in files(settings) if "/merged1-" in key]
    data = bytearray(objects.get(merged))
    data[len(data) // 3] ^= 1
    objects.put(merged, bytes(data))
    merge(settings, 1)
    assert len(files(settings)) == BATCHES + 1
    merge(settings)
    assert files(settings) == [merged]
    assert rows(settings) == before


def test_the_second_site_follows(settings: Settings, tmp_path: Path) -> None:
    replica = {"replica": f"file://{tmp_path}/second", "grace_seconds": 0.0}
    settings = settings.model_copy(update=replica)
    fill(settings)
    before = rows(settings)
    Reconciler(settings).run(everything=True)
    merge(settings.model_copy(update={"orphan_days": 7}), 1)
    Reconciler(settings).run(everything=True)
    merge(settings, 1)
    time.sleep(0.02)
    Reconciler(settings).run(everything=True)
    second = settings.model_copy(update={"store": settings.replica, "replica": ""})
    assert files(second) == files(settings)
    assert len(files(second)) == 1
    assert rows(second) == before


@pytest.mark.parametrize(
    "alerts",
    [
        pytest.param([made_alerts.ztf_alert(n) for n in range(1, 9)], id="made"),
        pytest.param(
            [alert for alert in made_alerts.real_alerts() if alert[:1] == b"\0"], id="real lsst"
        ),
        pytest.param(
            [alert for alert in made_alerts.real_alerts() if alert[:1] != b"\0"], id="real ztf"
        ),
    ],
)
def test_a_merged_file_gives_back_its_inputs(alerts: list[bytes], tmp_path: Path) -> None:
    if not alerts:
        pytest.skip("the real alerts are not here")
    decoder = make_batch_decoder(tmp_path)
    by_folder: dict[str, list[Input]] = {}
    for first in range(0, len(alerts), 3):
        for raw in decoder.detections(alerts[first : first + 3]).raw:
            key, data, _ = write_raw(raw)
            by_folder.setdefault(key.rpartition("/")[0], []).append(Input(key, read_raw(key, data)))
    for inputs in by_folder.values():
        key, data, whole = merge_raw(inputs, 1)
        again = list(merged_inputs(key, data))
        assert [one.key for one in again] == [one.key for one in inputs]
        for one, other in zip(again, inputs, strict=True):
            assert same_rows(one.rows, other.rows)
        twice = [*inputs, Input(key, read_raw(key, data))]
        assert merge_raw(inputs, 1)[2] == whole
        assert len(list(merged_inputs(*merge_raw(twice, 2)[:2]))) == len(twice)


def test_rows_that_differ_in_one_bit_are_not_the_same() -> None:
    one, other = (pa.table({"x": [1.0, float("nan"), zero]}) for zero in (0.0, -0.0))
    assert same_rows(one, pa.concat_tables([one.slice(0, 1), one.slice(1)]))
    assert not same_rows(one, other)
    assert not same_rows(one, one.slice(1))
