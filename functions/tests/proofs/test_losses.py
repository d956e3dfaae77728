"""What a store has lost of its proofs: said in a revision until it is back."""

from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.proofs import losses
from stampede.proofs.checks import ProofChecker
from stampede.proofs.leaves import ID_BYTES
from stampede.proofs.night_proof import NightProof
from stampede.store.compaction.packet_merge import PacketMerger
from stampede.store.compaction.packet_plan import Source
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.open import open_objects
from stampede.store.packs.pack_name import PackName
from stampede.store.runs.schema import PACKETS
from stampede.store.tables.table import Table
from tests.support.proofs import KEY, alerts, bodies, find_losses, prove, settings_in
from tests.support.store.stored_packets import store
from tests.support.store.watched_objects import BeforeGet, Failing

PARTS = ([0, 12], [12, 20])
"""Alerts of the packs of the night."""


def fill(settings: Settings) -> None:
    """Alerts of one night in two packs."""
    sent = [each for each in alerts(90) if each.survey == "ztf"]
    for begin, end in PARTS:
        store(settings, bodies(sent[begin:end]), first=begin)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def objects(settings: Settings) -> Objects:
    fill(settings)
    return open_objects(settings)


def small_pack(objects: Objects) -> ObjectInfo:
    """The pack of the second part."""
    return min(objects.list("packets/"), key=lambda info: info.size)


def named(proof: NightProof) -> list[bytes]:
    """The entries that a proof names as lost."""
    return [
        int(each["alert_id"]).to_bytes(ID_BYTES, "big") + bytes.fromhex(each["sha256"])
        for each in proof.lost["named"]
    ]


def merge(objects: Objects) -> None:
    """Merge the packs of each night."""
    table = Table(objects, PACKETS, 1 << 20)
    merger, nights = PacketMerger(objects, table, timedelta()), defaultdict(list)
    for info in objects.list("packets/"):
        source = Source(info, PackName.parse(info.key))
        nights[source.name.night].append(source)
    for some in nights.values():
        assert merger.merge(some).merged
    table.close()


def test_nothing_is_lost_from_a_sound_store(objects: Objects) -> None:
    prove(objects)
    assert find_losses(objects) == []
    merge(objects)
    for info in list(objects.list("packets/")):
        if PackName.parse(info.key).merged is None:
            objects.delete(info.key)
    assert find_losses(objects) == []


def test_what_is_lost_is_named_until_it_is_back(objects: Objects) -> None:
    (first,) = prove(objects)
    pack = small_pack(objects)
    data = objects.get(pack.key)
    objects.delete(pack.key)
    assert prove(objects) == [], "only who asks for losses reads all packs"
    (proof,) = find_losses(objects)
    assert proof.is_signed
    assert proof.lost["entries"] == PARTS[1][1] - PARTS[1][0]
    held = [row.tobytes() for row in first.leaves(objects).read()]
    assert named(proof) == sorted(named(proof))
    assert set(named(proof)) < set(held)
    assert proof.statement == first.statement | {
        "revision": 2,
        "replaces": [first.sha256],
        "lost": proof.lost,
    }
    assert (find_losses(objects), prove(objects)) == ([], [])
    objects.put(pack.key, data)
    (back,) = prove(objects)
    assert back.statement == first.statement | {"revision": 3, "replaces": [proof.sha256]}
    assert (find_losses(objects), prove(objects)) == ([], [])
    assert [*ProofChecker(objects, KEY.public_key, None).faults()] == []


def test_what_is_stored_again_in_another_pack_is_back(settings: Settings, objects: Objects) -> None:
    prove(objects)
    objects.delete(small_pack(objects).key)
    (proof,) = find_losses(objects)
    sent = [each for each in alerts(90) if each.survey == "ztf"]
    store(settings, bodies(sent[PARTS[1][0] : PARTS[1][1] - 1]), first=100)
    (part,) = prove(objects)
    assert part.lost["entries"] == 1
    assert set(named(part)) < set(named(proof))


def test_a_night_without_any_pack_is_lost_as_a_whole(objects: Objects) -> None:
    (first,) = prove(objects)
    packs = [(info.key, objects.get(info.key)) for info in objects.list("packets/")]
    for key, _ in packs:
        objects.delete(key)
    assert find_losses(objects, packet_days=1) == [], "retention does not keep the night"
    (proof,) = find_losses(objects)
    assert proof.lost["entries"] == first.count
    for key, data in packs:
        objects.put(key, data)
    (back,) = prove(objects)
    assert not back.lost


def test_a_damaged_pack_is_lost_until_it_is_repaired(objects: Objects) -> None:
    prove(objects)
    pack = small_pack(objects)
    good = objects.get(pack.key)
    objects.put(pack.key, good[:-9] + bytes(9))
    (proof,) = find_losses(objects)
    assert proof.lost["entries"] == PARTS[1][1] - PARTS[1][0]
    faults = [each.fault for each in ProofChecker(objects, None, None).faults()]
    assert any(fault.startswith(f"a pack cannot be read: {pack.key}") for fault in faults)
    assert prove(objects) == []
    objects.put(pack.key, good)
    (back,) = prove(objects)
    assert (back.lost, back.complete) == ({}, True)


def test_a_merge_at_the_same_time_loses_nothing(objects: Objects) -> None:
    prove(objects)
    packs = [info.key for info in objects.list("packets/")]
    left = [*packs]

    def merging(key: str, start: int) -> None:
        if key in packs and left:
            merge(objects)
            while left:
                objects.delete(left.pop())

    assert find_losses(BeforeGet(objects, merging)) == []
    assert not left


def test_at_most_so_many_are_named(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    prove(objects)
    objects.delete(small_pack(objects).key)
    monkeypatch.setattr(losses, "MOST_NAMED", 3)
    (proof,) = find_losses(objects)
    assert len(named(proof)) == 3
    assert proof.lost["entries"] == PARTS[1][1] - PARTS[1][0]


def test_two_that_find_the_same_write_the_same(tmp_path: Path, objects: Objects) -> None:
    other = settings_in(tmp_path / "other")
    fill(other)
    made = []
    for each in (objects, open_objects(other)):
        prove(each)
        each.delete(small_pack(each).key)
        made.append(find_losses(each))
    assert [proof.data for proof in made[0]] == [proof.data for proof in made[1]]


def test_a_store_that_does_not_answer_loses_nothing(objects: Objects) -> None:
    prove(objects)
    before = [info.key for info in objects.list("proofs/")]
    down = Failing(objects, StoreDown, lambda key, start: key.startswith("packets/"))
    with pytest.raises(StoreDown):
        find_losses(down)
    assert [info.key for info in objects.list("proofs/")] == before
