"""`stampede audit --json`: one document with stable fields, and the exit status of the tables."""

import json
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from stampede_simulator.simulator import Fields, Simulator
from tests.handlers.audit.test_audit import produce
from tests.handlers.audit.test_kafka_audit import commit
from tests.support.alerts import told_alerts
from tests.support.alerts.told_alerts import exposure_of, id_of, told
from tests.support.store.two_sites import put_all

pytestmark = pytest.mark.integration  # starts processes

ENTRY: dict[str, type | tuple[type, ...]] = {
    "table": str,
    "topic": str,
    "family": str,
    "topic_id": (str, type(None)),
    "partition": int,
    "low": int,
    "high": int,
    "received": int,
    "stored": dict,
    "dead_lettered": dict,
    "accepted": dict,
    "missing": dict,
    "in_flight": dict,
    "deleted_with_topic": dict,
    "not_messages": int,
    "faults": list,
    "notes": list,
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(store=f"file://{tmp_path}/first", replica=f"file://{tmp_path}/second")
    put_all(open_objects(made), range(4))
    put_all(open_objects(made), range(4, 8))
    return made


@pytest.fixture
def document(run, settings: Settings):
    """Run `audit --json`: the exit status and the document; the table must have that status too."""

    def go(*options: str, **env: str) -> tuple[int, dict]:
        env = {"STAMPEDE_STORE": settings.store, "STAMPEDE_REPLICA": settings.replica, **env}
        result = run("audit", *options, "--json", **env)
        found = json.loads(result.out)
        assert found["complete"] == (result.status == 0)
        for entry in found.get("ledger", ()):
            assert entry.keys() == ENTRY.keys()
            assert all(isinstance(entry[name], kind) for name, kind in ENTRY.items())
        if "--repair" not in options:
            assert run("audit", *options, **env).status == result.status
        return result.status, found

    return go


def lose_points(objects: Objects) -> list[int]:
    """Delete a run of `detections`; the offsets it held."""
    run = Table(objects, DETECTIONS).runs()[0]
    objects.delete(run.key)
    return list(run.coverage.intervals("alerts", 0)[0])


def test_a_store_that_lacks_nothing(document) -> None:
    status, found = document()
    assert status == 0
    assert (found["site"], found["objects"], found["warnings"]) == ("store", [], [])
    assert [(e["table"], e["received"], e["missing"]) for e in found["ledger"]] == [
        (table, 8, {"count": 0, "intervals": []}) for table in ("cutouts", "detections")
    ]
    assert found["packs_checked"][0] == {"table": "cutouts", "rows": 24, "all_rows": 24}


def test_missing_offsets(document, settings: Settings) -> None:
    lost = lose_points(open_objects(settings))
    status, found = document()
    assert status == 1
    [entry] = [e for e in found["ledger"] if e["table"] == "detections"]
    assert entry["missing"] == {"count": 4, "intervals": [lost]}
    assert (entry["stored"], entry["high"]) == ({"count": 4}, 8)


def test_objects_that_are_lost_or_damaged(document, settings: Settings) -> None:
    objects = open_objects(settings)
    [pack, _] = [info.key for info in objects.list("packs/")]
    objects.delete(pack)
    bad = f"tables/detections/0001-{32 * 'a'}.parquet"
    objects.put(bad, b"not Parquet at all")
    status, found = document()
    assert status == 1
    assert {each["key"] for each in found["objects"]} == {pack, bad}
    assert {(each["site"], each["mended"]) for each in found["objects"]} == {("store", False)}
    assert all(each["why"] for each in found["objects"])


def test_the_second_site(document, settings: Settings) -> None:
    status, found = document("--site", "replica")
    assert status == 1
    packs = next(each for each in found["not_replicated"] if each["kind"] == "packs")
    assert (packs["objects"], len(packs["examples"])) == (2, 2)
    assert packs["bytes"] > 1000
    Reconciler(settings.model_copy(update={"reconcile": "replica"})).run()
    status, found = document("--site", "replica", STAMPEDE_STORE="http://127.0.0.1:1/away")
    assert (status, found["site"], found["not_replicated"]) == (0, "replica", [])
    assert "proves by itself" in found["warnings"][0]


def test_deep(document, settings: Settings) -> None:
    Reconciler(settings.model_copy(update={"reconcile": "replica"})).run()
    objects = open_objects(settings)
    [pack, _] = [info.key for info in objects.list("packs/")]
    objects.put(pack, objects.get(pack)[:-9])
    status, found = document("--deep")
    assert status == 1
    assert [(each["key"], each["mended"]) for each in found["objects"]] == [(pack, False)]
    assert found["in_flight"] is None
    status, found = document("--deep", "--site", "both", "--repair")
    assert status == 0
    assert {each["mended"] for each in found["objects"]} == {True}
    assert found["read"].keys() == {"store", "replica"}
    assert found["in_flight"] == 0
    assert found["read"]["replica"]["objects"] == 6
    assert found["read"]["replica"]["bytes"] > 1000
    assert document("--deep", "--site", "both")[1]["objects"] == []


def test_deep_while_objects_are_in_flight(document, settings: Settings) -> None:
    """An object that the second site lacks is in flight while it is young, and lost after that."""
    second = sum(1 for _ in open_replica(settings).list(""))
    wanted = sum(1 for _ in open_objects(settings).list("")) - second
    assert wanted > 1
    status, found = document("--deep", "--site", "both")
    assert (status, found["complete"], found["objects"]) == (0, True, [])
    assert found["in_flight"] == wanted
    status, found = document("--deep", "--site", "both", STAMPEDE_GRACE_SECONDS="0")
    assert (status, len(found["objects"]), found["in_flight"]) == (1, wanted, 0)
    status, found = document("--deep", "--site", "both", "--repair")
    assert (status, found["in_flight"]) == (0, 0)


def test_an_error_prints_no_document(run) -> None:
    line = run("audit", "--json", STAMPEDE_STORE="http://127.0.0.1:1/stampede").one_line()
    assert "http://127.0.0.1:1" in line


def test_what_kafka_has_and_the_source_has_not_delivered(document, kafka, topic) -> None:
    there = Settings(kafka=kafka.bootstrap, group=topic)
    produce(there, topic, {0: 6})
    commit(there, topic, {0: 0})
    status, found = document(topic, STAMPEDE_KAFKA=kafka.bootstrap, STAMPEDE_GROUP=topic)
    assert status == 0
    [entry, _] = [e for e in found["ledger"] if e["partition"] == 0]
    assert entry["in_flight"] == {"count": 6, "intervals": [[0, 6]]}
    assert len(entry["topic_id"]) == 22


def test_a_detector_of_a_visit_that_was_lost_before_kafka(run, tmp_path: Path) -> None:
    env = {"STAMPEDE_STORE": f"file://{tmp_path}/store"}
    objects = open_objects(Settings(store=env["STAMPEDE_STORE"]))
    alerts = list(Simulator(5, Fields(20)).alerts(600))
    detector = told_alerts.common_exposure(alerts, 30)
    sent = [alert for alert in alerts if exposure_of(alert) != detector]
    gone = {id_of(alert) for alert in alerts if exposure_of(alert) == detector} & told(sent)
    told_alerts.store(objects, sent, tmp_path)

    table = run("audit", "--histories", **env)
    assert table.status == 1
    assert f"{detector.survey}: {len(gone)} detections never came as an alert" in table.out
    assert str(detector.visit) in table.out
    result = run("audit", "--histories", "--json", **env)
    found = json.loads(result.out)
    assert (result.status, found["complete"], found["site"]) == (1, False, "store")
    assert found["histories"] == [
        {"survey": detector.survey, "cause": "unexplained", "detections": len(gone)}
    ]
    [group] = found["groups"]
    assert (group["visit"], group["detector"]) == (detector.visit, detector.detector)
    assert (group["missing"], group["came"], len(group["objects"])) == (len(gone), 0, len(gone))
    assert {*group["ids"]} == {str(number) for _, number in gone}

    lost = [alert for alert in alerts if exposure_of(alert) == detector]
    told_alerts.store(objects, lost, tmp_path, len(sent))
    assert run("audit", "--histories", **env).status == 0
    assert json.loads(run("audit", "--histories", "--json", **env).out)["groups"] == []


def test_options_that_do_not_go_together(run, tmp_path: Path) -> None:
    env = {"STAMPEDE_STORE": f"file://{tmp_path}/store"}
    for options in (["--deep"], ["some-topic"], ["--site", "both"]):
        assert "--histories" in run("audit", "--histories", *options, **env).one_line()
