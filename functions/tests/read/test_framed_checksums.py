"""A store of before the CRC-32 of a record: rows had that of the whole message, frame and all.

tests/fixtures/framed holds two alerts as they were stored then, and the messages: one of Rubin in
Confluent framing, and one of ZTF whose history has points of three observing programmes.
"""

import shutil
import zlib
from hashlib import sha256
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.handlers.purge import purge
from stampede.handlers.replay.night import Night
from stampede.read.app import make_app
from stampede.store.integrity.verification import verify
from stampede.store.open import open_objects
from stampede.store.runs.schema import PACKETS
from stampede.store.tables.table import Table
from stampede_local.demo import oracle
from tests.support.alerts.mixed_programmes import programmes_in
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store

FRAMED = Path(__file__).parents[1] / "fixtures" / "framed"
NAMES = ("ztf", "lsst")
MESSAGES = {name: (FRAMED / f"{name}.avro").read_bytes() for name in NAMES}
NIGHTS = {"ztf": 61000, "lsst": 52109}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for folder in ("packs", "packets", "tables"):
        shutil.copytree(FRAMED / folder, tmp_path / "store" / folder)
    return Settings(
        store=f"file://{tmp_path}/store", spool=tmp_path, refresh_seconds=0, ztf_programids="1,2,3"
    )


def packet(settings: Settings, name: str) -> bytes:
    for read in serving(make_app(settings)):
        head = oracle.head(MESSAGES[name])
        response = read(f"/v1/alerts/{head['alert_id']}/packet?survey={name}")
        assert response.status == 200
        return response.data
    raise AssertionError


def rows(settings: Settings) -> list[dict]:
    ids = [oracle.head(message)["alert_id"] for message in MESSAGES.values()]
    return Table(open_objects(settings), PACKETS, threads=1).lookup(ids).to_pylist()


def test_the_fixture_is_of_before(settings: Settings) -> None:
    crc32s = {row["survey"]: row["crc32"] for row in rows(settings)}
    assert crc32s == {name: zlib.crc32(message) for name, message in MESSAGES.items()}
    assert {row["framed_crc32"] for row in rows(settings)} == {None}
    for info in open_objects(settings).list(""):
        verify(open_objects(settings), info)


@pytest.mark.parametrize("name", NAMES)
def test_the_messages_come_back(settings: Settings, name: str) -> None:
    assert packet(settings, name) == MESSAGES[name]
    [sent] = Night(settings, NIGHTS[name])
    assert sent.message == MESSAGES[name]


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_that_is_sent_again_is_a_version_of_its_own(settings: Settings, name: str) -> None:
    """The number of its record is another one; readers get the same."""
    store(settings, [MESSAGES[name]], 100)
    versions = {row["framed_crc32"] for row in rows(settings) if row["survey"] == name}
    assert versions == {None, zlib.crc32(MESSAGES[name])}
    assert packet(settings, name) == MESSAGES[name]
    assert [each.message for each in Night(settings, NIGHTS[name])] == [MESSAGES[name]] * 2
    for read in serving(make_app(settings)):
        head = oracle.head(MESSAGES[name])
        assert len(read(f"/v1/alerts/{head['alert_id']}?survey={name}").json()["cutouts"]) == 3


def test_its_packets_can_be_cut(settings: Settings) -> None:
    """The images of a packet that was cut are still those of its message."""
    settings = settings.model_copy(update={"ztf_programids": "1"})
    assert purge(settings)["packets"] == 1
    assert programmes_in(packet(settings, "ztf")) == [1, 1, 1]
    [row] = [row for row in rows(settings) if row["survey"] == "ztf"]
    assert row["sent_crc32"] == zlib.crc32(MESSAGES["ztf"])
    assert row["sent_sha256"] == sha256(MESSAGES["ztf"]).hexdigest()
    assert row["rows_cut"] == 6
    assert packet(settings, "lsst") == MESSAGES["lsst"]
