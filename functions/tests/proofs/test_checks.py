"""Planted faults of proofs and of what they prove: each is named."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.proofs.checks import ProofChecker
from stampede.proofs.leaves import packed
from stampede.proofs.leaves import put as put_leaves
from stampede.proofs.night_proof import NightProof, signed
from stampede.proofs.signatures import SigningKey, canonical, make_key
from stampede.store.integrity.proof_keys import leaves_key, proof_key
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects
from stampede.store.runs.run_name import digest
from tests.support.proofs import KEY, alerts, bodies, prove, settings_in
from tests.support.store.stored_packets import store

COUNT = 60
FORGER = SigningKey(make_key(), "forger")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def objects(settings: Settings) -> Objects:
    store(settings, bodies(alerts(COUNT)))
    return open_objects(settings)


def faults(objects: Objects, key: str | None = KEY.public_key) -> list[str]:
    return [f"{each.survey}: {each.fault}" for each in ProofChecker(objects, key, None).faults()]


def put(objects: Objects, proof: NightProof) -> None:
    objects.put(proof.key, proof.data)


def revised(objects: Objects, proof: NightProof, change: dict, key: SigningKey = KEY) -> None:
    """Put another proof in the place of one."""
    objects.delete(proof.key)
    put(objects, signed(proof.statement | change, key))


def test_sound_proofs_have_no_faults(settings: Settings, objects: Objects) -> None:
    prove(objects)
    assert faults(objects) == []
    store(settings, bodies(alerts(COUNT, seed=9)), first=500)
    prove(objects)
    assert faults(objects) == []


def test_a_lost_alert_is_named(settings: Settings, objects: Objects) -> None:
    lost = alerts(COUNT, seed=9)[:1]
    before = {info.key for info in objects.list("packets/")}
    store(settings, bodies(lost), first=500)
    prove(objects)
    (pack,) = {info.key for info in objects.list("packets/")} - before
    objects.delete(pack)
    (fault,) = faults(objects)
    assert fault.endswith(f"alert {lost[0].alert_id} is in the proof and not in the store")


def test_an_alert_that_came_later_is_named_until_it_is_proven(
    settings: Settings, objects: Objects
) -> None:
    first = prove(objects)
    night = max(each.night for each in first if each.survey == "lsst")
    late = next(
        each for each in alerts(400)[COUNT:] if each.survey == "lsst" and int(each.mjd) == night
    )
    store(settings, [late.body], first=500)
    (fault,) = faults(objects)
    assert fault.endswith(f"alert {late.alert_id} is in the store and not in the proof")
    prove(objects)
    assert faults(objects) == []


def test_a_changed_alert_is_named(objects: Objects) -> None:
    proof = prove(objects)[0]
    entries = proof.leaves(objects).read().copy()
    entries[3, -1] ^= 1
    leaves = packed(entries)
    put_leaves(objects, leaves_key(proof.survey, proof.night, leaves.digest), leaves)
    tree = {"entries": len(entries), "root": leaves.root.hex(), "leaves": leaves.digest}
    revised(objects, proof, {"tree": tree})
    alert_id = int.from_bytes(entries[3, :8].tobytes(), "big")
    assert f"ztf: alert {alert_id} has another record than in the proof" in faults(objects)


def forged(objects: Objects, proof: NightProof) -> None:
    """Other counts under the signature of the true ones."""
    document = json.loads(proof.data)
    document["proof"]["alerts"] += 1
    data = canonical(document)
    objects.delete(proof.key)
    key = proof_key(proof.survey, proof.night, proof.revision, digest(data))
    put(objects, replace(proof, key=key, data=data))


def by_another_key(objects: Objects, proof: NightProof) -> None:
    revised(objects, proof, {}, FORGER)


def without_its_leaves(objects: Objects, proof: NightProof) -> None:
    objects.delete(proof.leaves_key)


def with_damaged_leaves(objects: Objects, proof: NightProof) -> None:
    data = bytearray(objects.get(proof.leaves_key))
    data[7] ^= 1
    objects.put(proof.leaves_key, bytes(data))


def damaged(objects: Objects, proof: NightProof) -> None:
    objects.put(proof.key, proof.data[:-1])


def of_a_lost_revision(objects: Objects, proof: NightProof) -> None:
    revised(objects, proof, {"revision": 2, "replaces": ["00" * 32]})


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (forged, "revision 1 does not have the signature of its key"),
        (by_another_key, "revision 1 is signed by another key"),
        (without_its_leaves, ".leaves"),
        (with_damaged_leaves, "does not have the root of its proof"),
        (damaged, "does not have the digest in its name"),
        (of_a_lost_revision, "revision 2 replaces a revision that is not there"),
    ],
)
def test_a_planted_fault_is_named(
    objects: Objects, plant: Callable[[Objects, NightProof], None], said: str
) -> None:
    proof = next(each for each in prove(objects) if each.survey == "ztf")
    plant(objects, proof)
    assert any(said in fault for fault in faults(objects)), faults(objects)


def test_a_broken_chain_of_nights_is_named(objects: Objects) -> None:
    lsst = sorted((each for each in prove(objects) if each.survey == "lsst"), key=lambda p: p.night)
    first, second = lsst[:2]
    revised(objects, first, {"complete": False})  # signed, and another one than was linked
    said = f"lsst: revision 1 names a proof of night {first.night} that is not there"
    assert faults(objects) == [said]
    assert second.statement["previous"]["sha256"] == first.sha256


def test_what_nobody_signed_is_named(objects: Objects) -> None:
    prove(objects, key=None)
    assert {fault.partition(": ")[2] for fault in faults(objects)} == {"revision 1 is not signed"}


def test_packets_that_retention_deleted_are_not_missed(objects: Objects) -> None:
    prove(objects)
    for info in objects.list("packets/"):
        objects.delete(info.key)
    assert len(faults(objects)) == COUNT
    assert [*ProofChecker(objects, KEY.public_key, 1).faults()] == []
