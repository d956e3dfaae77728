"""The step `histories`: a detector that was lost before Kafka is found, once a day at most."""

import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.handlers.histories.causes import Cause
from stampede.handlers.histories.missing import Group
from stampede.handlers.reconcile import histories
from stampede.handlers.reconcile.findings import Finding
from stampede.handlers.reconcile.histories import compare_histories
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.lookup import histories_summary
from stampede.lookup.histories_summary import HistoriesSummary, Lacking
from stampede.runtime.clock import mjd
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects
from stampede.telemetry import histories_metrics
from tests.support.alerts.lost_detector import LOST, NIGHTS, lost, received, sent
from tests.support.proofs import bodies, settings_in
from tests.support.store.stored_packets import store
from tests.support.store.two_sites import put_pack


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path).model_copy(update={"reconcile": "histories"})


@pytest.fixture
def objects(settings: Settings) -> Objects:
    return open_objects(settings)


def keys(objects: Objects) -> list[str]:
    return [info.key for info in objects.list(histories_summary.FOLDER)]


def summary(objects: Objects) -> HistoriesSummary:
    found = histories_summary.load(objects)
    assert found
    return found


def measured() -> dict[str, tuple[float, float]]:
    """Unexplained detections and lacking detectors of each survey, as the metrics have them."""
    unexplained, lacking = (
        {
            sample.labels["survey"]: sample.value
            for metric in gauge.collect()
            for sample in metric.samples
        }
        for gauge in (
            histories_metrics.UNEXPLAINED,
            histories_metrics.LACKING,
        )
    )
    assert unexplained.keys() == lacking.keys()
    return {survey: (unexplained[survey], lacking[survey]) for survey in lacking}


def waiting() -> float:
    return histories_metrics.WAITING._value.get()


def age(objects: Objects, **ago: float) -> None:
    """Let the last look be so long ago."""
    last = summary(objects)
    histories_summary.save(objects, replace(last, at=last.at - timedelta(**ago)))


def damage(objects: Objects) -> dict[str, bytes]:
    """Cut off a run of `cutouts`; return what it was."""
    key = next(objects.list("tables/cutouts/")).key
    whole = bytes(objects.get(key))
    objects.put(key, whole[:-9])
    return {key: whole}


def test_a_lost_detector_is_found_within_two_nights(settings: Settings, objects: Objects) -> None:
    store(settings, bodies(received()))
    Reconciler(settings).run(seconds=60)
    found = summary(objects)
    assert (found.looked, found.times, found.why) == (NIGHTS, 1, "")
    assert found.made == found.at
    came = Counter((alert.survey, int(alert.mjd)) for alert in received())
    assert {(each.survey, each.night): each.came for each in found.nights} == {
        name: count for name, count in came.items() if name[1] in NIGHTS
    }
    [night] = [each for each in found.nights if each.missing]
    ids = sorted(alert.alert_id for alert in lost())
    assert (night.survey, night.night, night.much) == (LOST.survey, NIGHTS[0], 1)
    assert night.missing == {"unexplained": len(ids)}
    assert night.worst == [Lacking(LOST.visit, LOST.detector, len(ids), 0, ids[:3])]
    assert measured() == {"lsst": (len(ids), 1), "ztf": (0, 0)}


def test_nothing_is_missing_if_all_came(settings: Settings, objects: Objects) -> None:
    store(settings, bodies(sent()))
    Reconciler(settings).run()
    assert {each.night for each in summary(objects).nights} == {*NIGHTS}
    assert all(
        (each.missing, each.much, each.worst) == ({}, 0, []) for each in summary(objects).nights
    )


def test_nights_are_looked_at_twice_on_two_days(settings: Settings, objects: Objects) -> None:
    store(settings, bodies(received()))
    seen = [keys(objects)]
    for hours in (0, 0, 24, 24, 24):
        if hours:
            age(objects, hours=hours)
        before = keys(objects)
        Reconciler(settings).run()
        seen.append(["looked"] if keys(objects) != before else ["not"])
    assert seen == [[], ["looked"], ["not"], ["looked"], ["not"], ["not"]]
    assert summary(objects).times == 2
    Reconciler(settings).run(everything=True)
    assert summary(objects).times == 3


def test_what_came_late_is_not_missing_any_more(settings: Settings, objects: Objects) -> None:
    store(settings, bodies(received()))
    Reconciler(settings).run()
    assert sum(each.much for each in summary(objects).nights) == 1
    histories_metrics.LACKING.clear()
    histories_metrics.UNEXPLAINED.clear()
    Reconciler(settings).run()  # as in a new pod, which only reads what is known
    assert measured()["lsst"] == (16, 1)
    store(settings, bodies(lost()), first=len(received()))
    age(objects, days=1)
    Reconciler(settings).run()
    assert sum(each.much for each in summary(objects).nights) == 0
    assert measured() == {"lsst": (0, 0), "ztf": (0, 0)}


def test_a_night_that_ended_a_day_ago_is_the_last(settings: Settings, objects: Objects) -> None:
    """Packs of yesterday's night are there, and of one to come."""
    store(settings, bodies(received()))
    today = int(mjd(objects.now()))
    for number, night in enumerate((today - 1, today, today + 1)):
        put_pack(objects, [number], night)
    Reconciler(settings).run()
    assert summary(objects).looked == NIGHTS
    Reconciler(settings.model_copy(update={"histories_nights": 2})).run(everything=True)
    assert summary(objects).looked == NIGHTS[1:]
    assert {each.night for each in summary(objects).nights} == {*NIGHTS[1:]}
    put_pack(objects, [9], today - 2)
    age(objects, days=1)
    Reconciler(settings).run()
    assert summary(objects).looked == [today - 2], "the others are too long ago"


def test_a_damaged_table_accuses_nobody_and_stops_no_other_step(
    settings: Settings, objects: Objects
) -> None:
    store(settings, bodies(received()))
    whole = damage(objects)
    pack = put_pack(objects, range(900, 903))
    both = settings.model_copy(update={"reconcile": "packs,histories", "grace_seconds": 0.0})
    reports: list[Finding] = []
    with pytest.raises(Damaged, match="would count as missing"):
        Reconciler(both, reports.append).run()
    assert Finding("unindexed", pack.key, True) in reports
    found = summary(objects)
    assert (found.made, found.nights, found.times) == (None, [], 0)
    assert "would count as missing" in found.why
    for key, data in whole.items():
        objects.put(key, data)
    Reconciler(settings).run()
    assert summary(objects).why, "it waits some hours"
    age(objects, hours=7)
    Reconciler(settings).run()
    assert (summary(objects).why, len(summary(objects).nights), waiting()) == ("", 4, 0)


def test_damage_does_not_take_away_what_was_known(settings: Settings, objects: Objects) -> None:
    store(settings, bodies(received()))
    Reconciler(settings).run()
    before = summary(objects)
    damage(objects)
    age(objects, days=1)
    with pytest.raises(Damaged):
        Reconciler(settings).run()
    found = summary(objects)
    assert (found.nights, found.made) == (before.nights, before.made)
    assert found.why
    assert (measured()["lsst"], waiting()) == ((16, 1), 3)


@pytest.mark.parametrize("of", ["time", "memory"])
def test_a_look_gives_up_before_it_takes_too_much(
    settings: Settings, objects: Objects, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    store(settings, bodies(received()))
    if of == "memory":
        monkeypatch.setattr(histories, "MOST_HELD", 15)
    end = time.monotonic() + (0 if of == "time" else 60)
    found = compare_histories(objects, settings, end=end)
    assert found
    assert (found.nights, found.times) == ([], 0)
    assert ("too long" if of == "time" else "more than 15 rows") in found.why
    before = keys(objects)
    assert compare_histories(objects, settings, end=end) == found
    assert keys(objects) == before


def test_it_can_be_turned_off_and_a_dry_run_looks_at_nothing(
    settings: Settings, objects: Objects
) -> None:
    store(settings, bodies(received()))
    Reconciler(settings.model_copy(update={"histories_nights": 0})).run(everything=True)
    Reconciler(settings).run(repair=False)
    assert keys(objects) == []


def test_no_more_is_named_than_a_summary_holds() -> None:
    """The worst ones: where much is missing, then where most is."""
    found = histories._Found()
    groups = [(number, 5 + number % 7, 100) for number in range(3_000)] + [(9_000, 12, 0)]
    for visit, missing, came in groups:
        found.add(
            Group(
                "lsst",
                1,
                visit,
                1,
                Cause.UNEXPLAINED,
                missing,
                came,
                [*range(missing)],
                [],
            )
        )
    made = found.summary("lsst", 1, 7)
    assert made.missing == {"unexplained": sum(missing for _, missing, _ in groups)}
    assert (made.much, len(made.worst)) == (1, histories.MOST_NAMED)
    assert [each.visit for each in made.worst[:1]] == [9_000]
    assert {each.missing for each in made.worst[1:]} == {11}
    assert all(len(each.ids) == 3 for each in made.worst)
