"""`stampede proofs`: from a new key to a comparison, as an operator types it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stampede.cli.proofs import proofs
from stampede.errors import SetupError
from stampede.store.open import open_objects
from tests.support.proofs import alerts, bodies, settings_in
from tests.support.store.stored_packets import store

COUNT = 30


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command on a store of alerts, whose proofs are signed by a key that it made."""
    settings = settings_in(tmp_path)
    store(settings, bodies(alerts(COUNT)))
    monkeypatch.setenv("STAMPEDE_STORE", settings.store)
    monkeypatch.setattr("stampede.cli.running.DATA", tmp_path / "none")
    monkeypatch.setattr("stampede.cli.running.OTHERS", tmp_path / "no-others")
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments: object) -> Result:
        return CliRunner().invoke(proofs, [str(each) for each in arguments])

    return command


def test_a_key_then_proofs_then_a_check(run, tmp_path: Path, monkeypatch) -> None:
    made = run("key", tmp_path / "proof.pem")
    assert made.exit_code == 0
    public_key = made.stdout.removeprefix("public key: ").strip()
    assert (tmp_path / "proof.pem").stat().st_mode & 0o777 == 0o600
    again = run("key", tmp_path / "proof.pem")
    assert isinstance(again.exception, SetupError)
    assert "File exists" in again.exception.message

    unsigned = run("make")
    assert "they are not signed: STAMPEDE_PROOF_KEY names no key" in unsigned.stdout
    assert "revision 1 is not signed" in run("check").stdout
    objects = open_objects(settings_in(tmp_path))
    for info in [*objects.list("proofs/"), *objects.list("proving/")]:
        objects.delete(info.key)

    monkeypatch.setenv("STAMPEDE_PROOF_KEY", str(tmp_path / "proof.pem"))
    signed = run("make", "--days", 0)
    assert "proofs made" in signed.stdout
    assert "not signed" not in signed.stdout
    assert "each night has its proof already" in run("make").stdout
    sound = run("check", "--public-key", public_key)
    assert sound.exit_code == 0, sound.stdout
    assert "nights are as proven" in sound.stdout
    assert f"{COUNT} alerts of proofs were read" not in sound.stdout
    deep = run("check", "--deep")
    assert deep.exit_code == 0, deep.stdout
    assert f"{COUNT} alerts of proofs were read" in deep.stdout
    other = run("check", "--public-key", "AAAA")
    assert other.exit_code == 1
    assert f"is signed by another key, {public_key}" in other.stdout


def test_losses_are_said_only_if_asked_for(run, tmp_path: Path) -> None:
    run("make")
    objects = open_objects(settings_in(tmp_path))
    packs = {info.key: objects.get(info.key) for info in objects.list("packets/")}
    for key in packs:
        objects.delete(key)
    assert "each night has its proof already" in run("make").stdout
    lines = run("make", "--losses").stdout.splitlines()
    lost = [int(line.rpartition(", ")[2].split()[0]) for line in lines if line.endswith(" lost")]
    assert sum(lost) == COUNT
    for key, data in packs.items():
        objects.put(key, data)
    back = run("make", "--losses").stdout
    assert "revision 3" in back
    assert "lost" not in back


def test_a_comparison_names_what_differs(run, tmp_path: Path) -> None:
    run("make")
    ids = [each.alert_id for each in alerts(COUNT)]
    listed = tmp_path / "ids.csv"
    listed.write_text("\n".join(["alert_id", *map(str, ids)]))
    equal = run("compare", listed)
    assert equal.exit_code == 0, equal.stdout
    assert {line.rpartition(": ")[2] for line in equal.stdout.splitlines()} == {"equal"}
    listed.write_text("\n".join(["alert_id", *map(str, ids[1:])]))
    lacking = run("compare", listed)
    assert lacking.exit_code == 1
    assert f"1 only here: {ids[0]}" in lacking.stdout
    documents = [json.loads(line) for line in run("compare", listed, "--json").stdout.splitlines()]
    assert [each["only_here"] for each in documents if "only_here" in each] == [
        {"count": 1, "alert_ids": [str(ids[0])]}
    ]
    one_night = run("compare", listed, "--survey", "ztf", "--nights", documents[-1]["night"])
    assert len(one_night.stdout.splitlines()) == 1
    refused = run("compare", listed, "--nights", "today")
    assert isinstance(refused.exception, SetupError)
