"""The proofs of nights: what they say, and what changes them."""

import json
from collections import defaultdict
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from stampede.alerts import packets
from stampede.alerts.framing import Framing
from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.proofs.leaves import ID_BYTES, WIDTH, StoredLeaves, packed, put, united
from stampede.proofs.merkle_tree import leaf_hash, root_from
from stampede.proofs.night_proof import NightProof, latest_of
from stampede.proofs.prover import Prover
from stampede.proofs.signatures import canonical, is_signed
from stampede.store.compaction.packet_merge import PacketMerger
from stampede.store.compaction.packet_plan import Source
from stampede.store.integrity.verification import verify
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects
from stampede.store.packs.pack_name import PackName
from stampede.store.runs.schema import PACKETS
from stampede.store.tables.table import Table
from stampede_simulator.alert_bytes import SimulatedAlert
from tests.support.alerts import made_alerts
from tests.support.proofs import KEY, alerts, bodies, prove, settings_in
from tests.support.store.stored_packets import store

COUNT = 60


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def objects(settings: Settings) -> Objects:
    return open_objects(settings)


def expected(some: list[SimulatedAlert]) -> list[bytes]:
    """The entries of alerts, in order, from their bytes alone."""
    records = [Framing(16 << 20).take(each.body).record for each in some]
    return sorted(
        each.alert_id.to_bytes(8, "big") + sha256(record).digest()
        for each, record in zip(some, records, strict=True)
    )


def entries_in(objects: Objects) -> list[bytes]:
    """All entries of the latest proofs."""
    found = []
    for folder in objects.list_folder("proofs/").folders:
        for night in objects.list_folder(folder).folders:
            _, survey, number, _ = night.split("/")
            for proof in latest_of(objects, survey, int(number)):
                found += [row.tobytes() for row in proof.leaves(objects).read()]
    return sorted(found)


def test_every_alert_is_in_the_proof_of_its_night(settings: Settings, objects: Objects) -> None:
    sent = alerts(COUNT)
    store(settings, bodies(sent))
    made = prove(objects)
    assert entries_in(objects) == expected(sent)
    for proof in made:
        assert proof.is_signed
        assert is_signed(canonical(proof.statement), proof.signature or "", KEY.public_key)
        assert proof.statement["alerts"] == proof.count
        assert proof.statement["complete"] is True
    chained = defaultdict(list)
    for proof in made:
        before = chained[proof.survey]
        named = {"night": before[-1].night, "sha256": before[-1].sha256} if before else None
        assert proof.statement["previous"] == named
        before.append(proof)
    assert len(chained["lsst"]) > 1, "the nights of one survey are linked"
    for info in [*objects.list("proofs/"), *objects.list("proving/")]:
        verify(objects, info)


def test_offsets_are_accounted_for(settings: Settings, objects: Objects) -> None:
    sent = alerts(COUNT)
    store(settings, bodies(sent[:40]))
    store(settings, bodies(sent[40:]), first=50)  # Kafka has nothing of 40 to 49
    proofs = prove(objects)
    missing = set()
    for proof in proofs:
        offsets = proof.statement["offsets"]
        counted = [
            number
            for name in ("stored", "other_nights", "dead_lettered", "missing")
            for low, high in offsets[name].get("alerts/0", [])
            for number in range(low, high)
        ]
        assert sorted(counted) == [*range(min(counted), max(counted) + 1)]
        missing |= {(low, high) for low, high in offsets["missing"].get("alerts/0", [])}
    assert missing == {(40, 50)}
    stored = [
        high - low
        for proof in proofs
        for low, high in proof.statement["offsets"]["stored"]["alerts/0"]
    ]
    assert sum(stored) == COUNT


def test_late_alerts_are_in_a_revision_and_the_same_again_are_not(
    settings: Settings, objects: Objects
) -> None:
    sent = alerts(COUNT)
    store(settings, bodies(sent[:40]))
    first = {(each.survey, each.night): each for each in prove(objects)}
    assert prove(objects) == []
    store(settings, bodies(sent[:40]), first=100)  # all of them once more, in another pack
    assert prove(objects) == []
    store(settings, bodies(sent[40:]), first=200)
    revised = [each for each in prove(objects) if each.revision == 2]
    assert revised
    for proof in revised:
        assert proof.statement["replaces"] == [first[proof.survey, proof.night].sha256]
    assert entries_in(objects) == expected(sent)


def test_merges_and_retention_change_no_proof(settings: Settings, objects: Objects) -> None:
    sent = alerts(COUNT)
    for first in (0, 30):
        store(settings, bodies(sent[first : first + 30]), first=first)
    prove(objects)
    before = {info.key for info in objects.list("proofs/")}
    table = Table(objects, PACKETS, 1 << 20)
    merger = PacketMerger(objects, table, timedelta())
    packs = list(objects.list("packets/"))
    sources = [Source(info, PackName.parse(info.key)) for info in packs]
    nights = defaultdict(list)
    for source in sources:
        nights[source.name.night, source.name.programids].append(source)
    merged = sum(merger.merge(some).merged for some in nights.values())
    assert merged
    table.close()
    assert prove(objects) == []
    for info in packs:
        objects.delete(info.key)
    assert prove(objects) == []
    assert {info.key for info in objects.list("proofs/")} == before


def test_a_pass_that_is_stopped_anywhere_is_made_again_with_the_same_bytes(
    tmp_path: Path, settings: Settings, objects: Objects
) -> None:
    store(settings, bodies(alerts(COUNT)))
    other = settings_in(tmp_path / "other")
    store(other, bodies(alerts(COUNT)))
    prove(open_objects(other))
    wanted = {info.key: info.size for info in open_objects(other).list("proofs/")}

    class Stopped(Exception):
        pass

    put = objects.put
    for allowed in range(20):
        left = [allowed]

        def stopping(*args, left: list[int] = left, **options) -> None:
            if not left[0]:
                raise Stopped
            left[0] -= 1
            put(*args, **options)

        objects.put = stopping
        try:
            prove(objects)
            break
        except Stopped:
            continue
    objects.put = put
    assert {info.key: info.size for info in objects.list("proofs/")} == wanted


def test_two_that_saw_other_packs_are_united_by_the_next(
    tmp_path: Path, settings: Settings, objects: Objects
) -> None:
    sent = [each for each in alerts(COUNT) if each.survey == "ztf"]
    half = len(sent) // 2
    parts = []
    for number, some in enumerate((sent[:half], sent[half:])):
        apart = settings_in(tmp_path / str(number))
        store(apart, bodies(some), first=100 * number)
        store(settings, bodies(some), first=100 * number)
        prove(open_objects(apart))
        parts.append(open_objects(apart))
    for part in parts:
        for info in part.list("proofs/"):
            objects.put(info.key, part.get(info.key))
    assert entries_in(objects) == expected(sent)  # in two proofs of revision 1
    (proof,) = prove(objects)
    assert proof.revision == 2
    assert len(proof.statement["replaces"]) == 2
    assert proof.count == len(sent)


def test_versions_of_an_alert_are_entries_of_their_own(
    settings: Settings, objects: Objects
) -> None:
    one = made_alerts.ztf_alert(7)
    again = made_alerts.ztf_record(7)["candidate"] | {"magpsf": 17.0}
    other = made_alerts.ztf_alert(7, candidate=again)
    store(settings, [one, other, one])
    (proof,) = prove(objects)
    assert (proof.count, proof.statement["alerts"]) == (2, 1)
    leaves = proof.leaves(objects).of_alert(7)
    assert len(leaves) == 2
    for leaf in leaves:
        assert root_from(leaf_hash(leaf.entry), leaf.number, 2, leaf.path) == proof.root


def test_damage_to_a_proof_stops_its_night_alone(settings: Settings, objects: Objects) -> None:
    sent = alerts(COUNT)
    store(settings, bodies(sent[:40]))
    first = prove(objects)
    ztf = next(each for each in first if each.survey == "ztf")
    objects.put(ztf.key, ztf.data.replace(b'"alerts":', b'"alerts": '))
    store(settings, bodies(sent[40:]), first=100)
    made: list[NightProof] = []
    with pytest.raises(Damaged, match="does not have the digest"):
        made.extend(Prover(objects, KEY, 1.0, None).make_pass(everything=True))
    assert {each.survey for each in made} == {"lsst"}
    objects.put(ztf.key, ztf.data)
    prove(objects)
    assert entries_in(objects) == expected(sent)


def test_a_damaged_pack_is_left_out_until_it_is_mended(
    settings: Settings, objects: Objects
) -> None:
    sent = [each for each in alerts(COUNT) if each.survey == "ztf"]
    half = len(sent) // 2
    store(settings, bodies(sent[:half]))
    (first,) = objects.list("packets/")
    good = objects.get(first.key)
    store(settings, bodies(sent[half:]), first=100)
    objects.put(first.key, good[:-9] + bytes(9))
    (proof,) = prove(objects)
    assert (proof.count, proof.statement["complete"]) == (len(sent) - half, False)
    assert prove(objects) == []
    objects.put(first.key, good)
    (proof,) = prove(objects)
    assert (proof.revision, proof.count, proof.statement["complete"]) == (2, len(sent), True)
    assert entries_in(objects) == expected(sent)


def test_a_proof_without_the_alerts_of_the_first_release_says_so(
    settings: Settings, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [each for each in alerts(COUNT) if each.survey == "ztf"]
    half = len(sent) // 2
    monkeypatch.setattr(packets, "sha256", lambda record: Undigested())
    store(settings, bodies(sent[:half]))
    monkeypatch.undo()
    prove(objects)
    store(settings, bodies(sent[half:]), first=100)
    proof = prove(objects)[-1]
    assert (proof.count, proof.statement["complete"]) == (len(sent) - half, False)
    store(settings, bodies(alerts(2 * COUNT)[COUNT:]), first=200)
    assert not next(each for each in prove(objects) if each.survey == "ztf").statement["complete"]


class Undigested:
    """Stands for the digest of a record whose row has none."""

    def digest(self) -> None:
        return None


def test_an_unsigned_proof_says_so(settings: Settings, objects: Objects) -> None:
    store(settings, bodies(alerts(10)))
    for proof in prove(objects, key=None):
        assert not proof.is_signed
        assert json.loads(proof.data)["signature"] is None


@pytest.mark.parametrize("count", [10_000, 250_000])
def test_paths_of_many_subtrees(objects: Objects, count: int) -> None:
    """More entries than a subtree has, or than one piece of an upload: a path takes two reads."""
    chance = np.random.default_rng(1)
    entries = chance.integers(0, 256, (count, WIDTH), np.uint8)
    ids = chance.integers(1, count, count).astype(">i8")  # many of them twice
    entries[:, :ID_BYTES] = ids.view(np.uint8).reshape(-1, ID_BYTES)
    entries = united(entries)
    assert [row.tobytes() for row in entries] == sorted(row.tobytes() for row in entries)
    leaves = packed(entries)
    root, data = leaves.root, b"".join(leaves.pieces)
    put(objects, "leaves", leaves)
    assert objects.get("leaves") == data
    stored = StoredLeaves(objects, "leaves", len(entries), root)
    assert np.array_equal(stored.read(), entries)
    for alert_id in [*ids[:200].tolist(), int(ids.min()), int(ids.max())]:
        leaves = stored.of_alert(alert_id)
        assert len(leaves) == (ids == alert_id).sum()
        for leaf in leaves:
            found = root_from(leaf_hash(leaf.entry), leaf.number, len(entries), leaf.path)
            assert found == root
    assert stored.of_alert(count + 1) == []
    flipped = bytearray(data)
    flipped[4100 * WIDTH] ^= 1
    objects.put("leaves", bytes(flipped))
    damaged = StoredLeaves(objects, "leaves", len(entries), root)
    with pytest.raises(Damaged):
        damaged.read()
    with pytest.raises(Damaged):
        damaged.of_alert(int.from_bytes(entries[4100, :ID_BYTES].tobytes(), "big"))
