"""Proofs of nights by HTTP, and the program in the documentation that verifies an alert."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.proofs.night_proof import keys_of, signed
from stampede.proofs.signatures import SigningKey, make_key
from stampede.read.app import make_app
from stampede.store.open import open_objects
from stampede_simulator.alert_bytes import SimulatedAlert
from tests.support.events.dead_letters import event, put_letters
from tests.support.proofs import KEY, alerts, bodies, find_losses, prove, settings_in
from tests.support.read.read_service import Reader, serving
from tests.support.store.stored_packets import store

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "verify-a-night.md"
COUNT = 40


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def sent(settings: Settings) -> list[SimulatedAlert]:
    some = alerts(COUNT)
    store(settings, bodies(some))
    prove(open_objects(settings))
    return some


@pytest.fixture
def read(settings: Settings, sent) -> Iterator[Reader]:
    yield from serving(make_app(settings))


def verifier() -> str:
    """The program in the documentation."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for line in program.splitlines() if line.strip()]
    assert len(lines) <= 35
    assert "stampede" not in program.lower()
    return program


def verify(read: Reader, alert_id: int, key: str = KEY.public_key) -> subprocess.CompletedProcess:
    """Run the program as a stranger does: no module of Stampede can be imported."""
    return subprocess.run(
        [sys.executable, "-I", "-c", verifier(), read.url, str(alert_id), key],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_stranger_verifies_an_alert_of_each_survey(read: Reader, sent) -> None:
    for survey in ("ztf", "lsst"):
        alert = max((each for each in sent if each.survey == survey), key=lambda each: each.mjd)
        done = verify(read, alert.alert_id)
        assert done.returncode == 0, done.stderr
        assert "which is signed and linked to all nights before" in done.stdout


def test_a_stranger_verifies_a_proof_that_counts_dead_letters(settings: Settings) -> None:
    some = [each for each in alerts(90) if each.survey == "ztf"][:20]
    store(settings, bodies(some[:10]))
    store(settings, bodies(some[10:]), first=20)
    put_letters(open_objects(settings), event(12), table="detections")
    prove(open_objects(settings))
    for read in serving(make_app(settings)):
        (latest,) = read("/v1/proofs").json()["proofs"]
        assert read(latest["href"]).json()["proof"]["dead_letters"] == {"400": 1}
        assert "1 of 400" in read(latest["href"].removeprefix("/v1")).data.decode()
        done = verify(read, some[0].alert_id)
        assert done.returncode == 0, done.stderr


def test_a_stranger_verifies_what_a_proof_says_is_lost(settings: Settings) -> None:
    some = [each for each in alerts(90) if each.survey == "ztf"][:20]
    store(settings, bodies(some[:10]))
    objects = open_objects(settings)
    kept = {info.key for info in objects.list("packets/")}
    store(settings, bodies(some[10:]), first=10)
    prove(objects)
    for key in {info.key for info in objects.list("packets/")} - kept:
        objects.delete(key)
    assert find_losses(objects)
    for read in serving(make_app(settings)):
        (latest,) = read("/v1/proofs").json()["proofs"]
        lost = read(latest["href"]).json()["proof"]["lost"]
        assert {int(each["alert_id"]) for each in lost["named"]} == {
            each.alert_id for each in some[10:]
        }
        page = read(latest["href"].removeprefix("/v1")).data.decode()
        assert '<dt>lost since</dt><dd><span class="bad">10 entries</span></dd>' in page
        done = verify(read, some[0].alert_id)
        assert done.returncode == 0, done.stderr
        proof = read(f"/v1/alerts/{some[15].alert_id}/proof").json()
        assert proof["revision"] == 2, "an entry never leaves a proof"


def test_a_damaged_proof_is_named_beside_the_others(settings: Settings, sent) -> None:
    objects = open_objects(settings)
    for read in serving(make_app(settings)):
        latest, *others = read("/v1/proofs").json()["proofs"]
    assert others
    place = latest["survey"], latest["night"]
    (key,) = keys_of(objects, *place)
    objects.put(key, objects.get(key).replace(b'"alerts":', b'"alerts": '))
    for read in serving(make_app(settings)):
        got = read("/v1/proofs")
        assert got.json()["proofs"] == others
        (damaged,) = got.json()["damaged"]
        assert (damaged["survey"], damaged["night"]) == place
        assert damaged["why"] == f"{key} does not have the digest in its name"
        why = f"the proof of night {latest['night']} of {latest['survey']} is damaged"
        assert got.headers["Stampede-Incomplete"] == why
        assert got.headers["Cache-Control"] == "no-store"
        first = read("/v1/proofs?limit=1").json()
        assert first["damaged"] == [damaged]
        assert first["next"] == latest["night"]
        assert "damaged" not in read(f"/v1/proofs?before={latest['night']}").json()
        keys = read("/.well-known/stampede-proof-keys")
        assert keys.json() == {"ed25519": [KEY.public_key]}
        assert keys.headers["Stampede-Incomplete"] == why
        assert read(f"/v1/proofs/{place[0]}/{place[1]}").status == 422
        assert read("/docs").status == 200


def test_another_key_is_refused(read: Reader, sent) -> None:
    done = verify(read, sent[0].alert_id, SigningKey(make_key(), "other").public_key)
    assert "InvalidSignature" in done.stderr


def test_what_was_not_signed_by_the_owner_is_refused(settings: Settings, read, sent) -> None:
    """Somebody who can write to the bucket makes a proof that names another root."""
    objects = open_objects(settings)
    latest = read("/v1/proofs").json()["proofs"][0]
    proof = read(latest["href"]).json()["proof"]
    forged = signed(proof | {"revision": 2}, SigningKey(make_key(), "forger"))
    objects.put(forged.key, forged.data)
    for reader in serving(make_app(settings)):
        alert = next(each for each in sent if int(each.mjd) == proof["night"])
        done = verify(reader, alert.alert_id)
        assert "InvalidSignature" in done.stderr


def test_the_path_of_an_alert_is_short(read: Reader, sent) -> None:
    got = read(f"/v1/alerts/{sent[0].alert_id}/proof")
    assert got.status == 200
    assert len(got.data) < 2000
    (version,) = got.json()["versions"]
    assert len(bytes.fromhex(version["sha256"])) == 32


def test_nights_are_listed_latest_first(read: Reader) -> None:
    proofs = read("/v1/proofs").json()["proofs"]
    nights = [each["night"] for each in proofs]
    assert nights == sorted(nights, reverse=True)
    assert sum(each["alerts"] for each in proofs) == COUNT
    assert all(each["signed"] for each in proofs)
    assert len(read("/v1/proofs?limit=1").json()["proofs"]) == 1
    assert {each["survey"] for each in read("/v1/proofs?survey=ztf").json()["proofs"]} == {"ztf"}
    keys = read("/.well-known/stampede-proof-keys").json()
    assert keys == {"ed25519": [KEY.public_key]}


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/v1/proofs/ztf/1", 404, "night 1 of ztf has no proof"),
        ("/v1/proofs/ztf/x", 400, "must be a night"),
        ("/v1/proofs/ztf/-1", 400, "must be a night"),
        ("/v1/alerts/123/proof", 404, "123"),
        ("/v1/proofs?limit=0", 400, "from 1 to 1000"),
        ("/v1/proofs?night=1", 400, "night"),
    ],
)
def test_what_there_is_not(read: Reader, path: str, status: int, said: str) -> None:
    got = read(path)
    assert got.status == status
    assert said in got.json()["detail"]


def test_a_night_that_is_not_proven_yet(settings: Settings, read: Reader) -> None:
    late = alerts(COUNT, seed=8)
    store(settings, bodies(late), first=1000)
    for reader in serving(make_app(settings)):
        got = reader(f"/v1/alerts/{late[0].alert_id}/proof")
        assert got.status == 404
        assert got.json()["type"].endswith("no-proof")


def test_the_page_of_a_night_links_to_its_proofs(settings: Settings, read: Reader) -> None:
    latest = read("/v1/proofs").json()["proofs"][0]
    page = read(f"/nights/{latest['night']}").data.decode()
    href = latest["href"].removeprefix("/v1")
    assert f'<a href="{href}">{latest["alerts"]:,} entries</a>' in page
    assert read(href).status == 200
    assert "not signed" not in page
    objects = open_objects(settings)
    for info in objects.list(f"proofs/{latest['survey']}/"):
        objects.put(info.key, b"{}")
    for reader in serving(make_app(settings)):
        page = reader(f"/nights/{latest['night']}").data.decode()
        assert f"<dt>{latest['survey'].upper()} proof</dt><dd>damaged</dd>" in page
