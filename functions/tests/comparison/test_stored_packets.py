"""`stampede proofs check --deep`: packets whose bytes are not those of their digests are named."""

import zlib
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

from stampede.alerts.columns import PACKET
from stampede.alerts.framing import Framing
from stampede.comparison.stored_packets import StoredPackets
from stampede.config.settings import Settings
from stampede.proofs.checks import ProofChecker
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.packs.packets import write_packets
from tests.support.alerts import made_alerts
from tests.support.proofs import alerts, bodies, prove, settings_in
from tests.support.store.stored_packets import store

COUNT = 40
NIGHT = 59400


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


def faults(objects: Objects, settings: Settings) -> tuple[list[str], StoredPackets]:
    said: list[str] = []
    packets = StoredPackets(objects, settings, said.append)
    found = [f"{each.survey} {each.night}: {each.fault}" for each in packets.faults()]
    assert said or not packets.compared
    return found, packets


def keep(objects: Objects, alert_id: int, sent: bytes, stored: bytes) -> None:
    """A pack whose row has the digest of one message, and the bytes of another."""
    record = Framing(16 << 20).take(sent).record
    row = {
        **{"alert_id": alert_id, "survey": "ztf", "object_id": "ZTF1", "mjd": NIGHT + 0.5},
        **{"packet": stored, "crc32": zlib.crc32(stored), "sha256": sha256(record).digest()},
    }
    pack = write_packets(pa.Table.from_pylist([row], PACKET), [[stored]], Coverage())
    objects.put(pack.key, pack.data)


def test_a_sound_store_has_no_faults(settings: Settings) -> None:
    store(settings, bodies(alerts(COUNT)))
    objects = open_objects(settings)
    prove(objects)
    found, packets = faults(objects, settings)
    assert (found, packets.compared, packets.gone) == ([], COUNT, 0)


def test_an_alert_whose_bytes_were_changed_with_their_checksum_is_named(settings: Settings) -> None:
    objects = open_objects(settings)
    for alert_id in (1, 2, 3):
        sent = made_alerts.ztf_alert(alert_id)
        other = made_alerts.ztf_record(alert_id)["candidate"] | {"magpsf": 17.0}
        changed = made_alerts.ztf_alert(alert_id, candidate=other)
        keep(objects, alert_id, sent, changed if alert_id == 2 else sent)
    prove(objects)
    assert [*ProofChecker(objects, None, None).faults()] == [], "by their digests they are sound"
    found, packets = faults(objects, settings)
    assert found == [f"ztf {NIGHT}: alert 2 has a packet with another record than in the proof"]
    assert packets.compared == 3


def test_bytes_that_are_no_alert_are_named(settings: Settings) -> None:
    objects = open_objects(settings)
    sent = made_alerts.ztf_alert(1)
    keep(objects, 1, sent, sent[:-40])
    prove(objects)
    (fault,) = faults(objects, settings)[0]
    assert fault.startswith(f"ztf {NIGHT}: alert 1 cannot be read: ")


def test_lost_images_are_named_unless_retention_deleted_them(settings: Settings) -> None:
    store(settings, bodies(alerts(COUNT)))
    objects = open_objects(settings)
    prove(objects)
    for info in objects.list("packs/"):
        objects.delete(info.key)
    found, packets = faults(objects, settings)
    assert len(found) + packets.compared == COUNT
    assert found
    assert all("cutout" in fault for fault in found)
    found, packets = faults(objects, settings.model_copy(update={"cutout_days": 1}))
    assert found == []
    assert packets.gone > 0


def test_damage_stops_neither_other_packs_nor_other_nights(settings: Settings) -> None:
    store(settings, bodies(alerts(COUNT)))
    objects = open_objects(settings)
    made = prove(objects)
    ztf = next(each for each in made if each.survey == "ztf")
    objects.put(ztf.key, ztf.data[:-1])
    found, packets = faults(objects, settings)
    assert len(found) == 1
    assert "its packets are not compared" in found[0]
    assert packets.compared == sum(each.count for each in made if each is not ztf)
