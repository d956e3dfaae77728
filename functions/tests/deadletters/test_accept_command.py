"""`stampede deadletters accept`, and what other commands say of accepted letters."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stampede.cli import status as status_module
from stampede.cli.main import app
from stampede.errors import StampedeError
from stampede.events.cloudevents.event import Event
from stampede.store.integrity.acceptances.decision import ACCEPTED
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table
from tests.support.events.dead_letters import event, put_letters

BOTH = ("cutouts/alerts/0/3", "detections/alerts/0/3")


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DirectoryObjects:
    """A store with three alerts and one that both functions refused."""
    monkeypatch.setenv("STAMPEDE_STORE", f"file://{tmp_path}/store")
    monkeypatch.setattr("stampede.cli.running.DATA", tmp_path / "none")
    monkeypatch.setattr(status_module, "FIRST_SECONDS", 0.0)
    objects = DirectoryObjects(tmp_path / "store")
    for spec in (TABLES["cutouts"], TABLES["detections"]):
        coverage = Coverage.of({("alerts", 0): range(3)})
        Table(objects, spec).append(spec.schema.empty_table(), coverage)
    refuse(objects, event(3))
    return objects


def refuse(objects: DirectoryObjects, letter: Event) -> None:
    for table in ("cutouts", "detections"):
        put_letters(objects, letter, table=table)


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, [*arguments], input=answer)


def deadletters(*arguments: str, answer: str | None = None) -> str:
    done = run("deadletters", *arguments, answer=answer)
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def doctor() -> tuple[int, str]:
    done = run("doctor")
    return done.exit_code, done.output


def ledger() -> list[tuple[int, int, int, int, int]]:
    """Of each table: received, stored, dead-lettered, accepted, missing."""
    done = run("audit", "--json")
    entries = json.loads(done.stdout)["ledger"]
    names = ("stored", "dead_lettered", "accepted", "missing")
    return [(each["received"], *(each[name]["count"] for name in names)) for each in entries]


def test_doctor_is_green_once_each_letter_is_accepted_and_not_after_a_new_one(objects) -> None:
    code, text = doctor()
    assert code == 1
    assert "1 alert is a dead letter" in text
    assert "deadletters accept" in text
    reason = ("--reason", "of another survey")
    assert deadletters("accept", BOTH[0], *reason) == "1 accepted as rightly refused"
    assert doctor()[0] == 1  # the other function refused it too
    all_of_them = deadletters("accept", "--all", *reason)
    assert all_of_them == "1 accepted as rightly refused, 1 accepted before"
    assert doctor()[0] == 0
    assert ledger() == [(4, 3, 1, 1, 0)] * 2
    assert run("audit").exit_code == 0
    refuse(objects, event(4))
    assert doctor()[0] == 1
    assert ledger() == [(5, 3, 2, 1, 0)] * 2


def test_other_bytes_with_the_offset_of_an_accepted_letter_are_not_accepted(objects) -> None:
    deadletters("accept", "--all")
    refuse(objects, Event(event(3).attributes, b"other bytes"))
    assert doctor()[0] == 1
    assert ledger() == [(4, 3, 1, 0, 0)] * 2


def test_lists_say_which_letters_are_accepted(objects) -> None:
    refuse(objects, event(4))
    deadletters("accept", *BOTH, "--reason", "of another survey")
    assert "4 in all, 0 stored since, 2 accepted" in deadletters("list")
    lines = map(json.loads, run("deadletters", "list", "--json").stdout.splitlines())
    accepted = {line["id"]: line["accepted"] for line in lines}
    assert {name for name, each in accepted.items() if each} == {*BOTH}
    assert accepted[BOTH[0]]["reason"] == "of another survey"
    assert "UTC of another survey" in deadletters("show", BOTH[0])
    assert "2 (1 accepted)" in run("audit").stdout
    assert "2 (1 accepted)" in run("status").stdout
    flows = json.loads(run("status", "--json").stdout)["functions"]
    assert [(flow["dead_lettered"], flow["accepted"]) for flow in flows] == [(2, 1)] * 2


def test_a_dry_run_records_nothing(objects) -> None:
    said = deadletters("accept", "--table", "cutouts", "--dry-run")
    assert said == "1 would be accepted as rightly refused"
    assert list(objects.list(ACCEPTED)) == []


def test_what_was_accepted_can_be_withdrawn(objects) -> None:
    deadletters("accept", "--all")
    assert deadletters("accept", "--all", "--undo") == "2 refused again, and not accepted"
    assert doctor()[0] == 1
    assert deadletters("accept", "--all", "--undo") == (
        "0 refused again, and not accepted, 2 were not accepted"
    )
    deadletters("accept", "--all")
    assert doctor()[0] == 0


def test_a_purge_of_accepted_letters_makes_nothing_missing(objects) -> None:
    refuse(objects, event(4))
    deadletters("accept", *BOTH)
    before = ledger()
    assert before == [(5, 3, 2, 1, 0)] * 2
    assert "0 dead letters removed" in deadletters("purge")
    said = run("deadletters", "purge", "--accepted", answer="n\n")
    assert said.exit_code == 1
    assert "2 dead letters, 2 of them not stored" in said.output
    assert "the ledger will show 0 of them as missing" in " ".join(said.output.split())
    assert "2 dead letters removed, 2 kept" in deadletters("purge", "--accepted", "--yes")
    assert ledger() == before
    gone = run("deadletters", "accept", BOTH[0], "--undo")
    assert f"there is no dead letter {BOTH[0]}" in str(gone.exception)
    assert "2 dead letters removed" in deadletters("purge", "--all", "--yes")
    assert ledger() == [(4, 3, 1, 1, 0)] * 2


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((), "which dead letters?"),
        (("--reason", "of another survey"), "--reason selects none"),
        (("--undo",), "which dead letters?"),
        (("--table", "lasso"), "no table 'lasso'"),
        (("cutouts/alerts/0/99",), "there is no dead letter cutouts/alerts/0/99"),
        (("alerts/0/3",), "not a dead letter's id"),
    ],
)
def test_a_wrong_selection_is_named(objects, arguments: tuple[str, ...], fault: str) -> None:
    done = run("deadletters", "accept", *arguments)
    assert isinstance(done.exception, StampedeError)
    assert fault in done.exception.message
    assert list(objects.list(ACCEPTED)) == []
