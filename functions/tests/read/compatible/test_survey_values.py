"""Fink's columns have the names of the survey's fields: so they must have their values."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.handlers import lightcurves
from stampede.read.app import make_app
from stampede_local.demo import oracle
from tests.support.alerts import made_alerts
from tests.support.read.read_service import Reader, serving
from tests.support.store.stored_packets import store

API = "/compatible/fink"


def messages() -> list[bytes]:
    candidate = made_alerts.ztf_record(7)["candidate"]
    candidate |= {"isdiffpos": "f", "magpsf": 19.5, "sigmapsf": 0.25}
    record = made_alerts.rubin_record(1101, 3)
    record["diaSource"] |= {"diaObjectId": 12, "ssObjectId": None, "band": "y"}
    record["diaSource"] |= {"timeWithdrawnMjdTai": None}
    made = [made_alerts.ztf_alert(7, candidate=candidate), made_alerts.confluent(record, 1101)]
    real = made_alerts.real_alerts()[::10] if made_alerts.REAL.exists() else []
    return [*made, *(one for one in real if known(one))]


def known(message: bytes) -> bool:
    """Whether Fink's routes find it by its object: not one of the solar system."""
    record = oracle.read_record(message)[1]
    return "candidate" in record or bool(record["diaSource"]["diaObjectId"])


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Reader]:
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path, refresh_seconds=0)
    store(settings, messages(), functions=[lightcurves])
    yield from serving(make_app(settings))


def test_they_are_those_of_the_alert(read: Reader) -> None:
    compared = 0
    for message in messages():
        record = oracle.read_record(message)[1]
        if "candidate" in record:
            own, prefix = record["candidate"] | {"objectId": record["objectId"]}, "i:"
            path = f"{API}/ztf/api/v1/objects?objectId={record['objectId']}"
            key = "i:candid"
        else:
            own, prefix = record["diaSource"], "r:"
            path = f"{API}/lsst/api/v1/sources?diaObjectId={own['diaObjectId']}"
            key = "r:diaSourceId"
        got = read(path)
        assert got.status == 200, got.data
        rows = {row[key]: row for row in got.json()}
        for name, value in rows[own[key.removeprefix(prefix)]].items():
            sent = own.get(name.removeprefix(prefix))
            assert value == (pytest.approx(sent, rel=2e-6) if isinstance(sent, float) else sent), (
                name
            )
            compared += 1
    assert compared > 20, compared
