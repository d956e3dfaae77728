"""Raw alerts: the documented ways to read them give each alert once, whatever its version."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import polars
import pytest

from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_store
from stampede.store.packs.raw_alerts import write_raw
from stampede_local.ceph import LocalCeph
from stampede_local.ports import free_port
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.store.ceph import minio_of

ROOT = Path(__file__).parents[4]


def versions_of_ztf() -> list[bytes]:
    """Alerts whose candidates have different fields, of several versions of the schema."""
    alerts = []
    for candid in range(1, 31):
        drb, forced = candid % 2 == 0, candid % 3 == 0
        record = made_alerts.ztf_record(candid)
        if not drb:
            del record["candidate"]["drb"]
        schema = made_alerts.ztf_schema(drb=drb, forced=forced)
        alerts.append(made_alerts.contained([record], schema))
    return alerts


def store(objects: Objects, alerts: Sequence[bytes], directory: Path) -> None:
    """Store raw alerts twice, in other batches, as a resend does."""
    decoder = make_batch_decoder(directory)
    for size in (7, 11):
        for first in range(0, len(alerts), size):
            for raw in decoder.detections(alerts[first : first + size]).raw:
                objects.put(*write_raw(raw))


def real(survey: str) -> list[bytes]:
    is_rubin = survey == "lsst"
    return [alert for alert in made_alerts.real_alerts() if (alert[:1] == b"\0") == is_rubin]


@pytest.fixture(params=["made", pytest.param("real", marks=pytest.mark.long)])
def ztf(request: pytest.FixtureRequest) -> list[bytes]:
    if request.param == "made":
        return versions_of_ztf()
    return real("ztf") or pytest.skip("the real alerts are not here")


def test_the_documented_query_gives_each_alert_once(
    ztf: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(DirectoryObjects(tmp_path), ztf, tmp_path)
    assert len(list((tmp_path / "alerts" / "ztf").iterdir())) > 1  # versions
    document = (ROOT / "docs" / "store.md").read_text()
    (query,) = re.findall(r"```sql\n([^`]*alerts/ztf.*?)```", document, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    rows = duckdb.sql(query).fetchall()
    everything = duckdb.sql("SELECT count(*) FROM 'alerts/ztf/*/*/*.parquet'").fetchall()
    assert everything[0][0] > len(ztf)
    assert len(rows) == len(ztf)
    assert len({candid for _, candid, _, _ in rows}) == len(ztf)
    with_drb = sum(drb is not None for *_, drb in rows)
    assert 0 < with_drb < len(ztf)


@pytest.mark.long
def test_every_version_of_rubin_in_one_query(tmp_path: Path) -> None:
    """By the same queries; `diaSource.diaSourceId` is the key in all of them."""
    versions = sorted(made_alerts.rubin_schemas())
    alerts = real("lsst")
    for number, version in enumerate([*versions, *versions], 1):
        record = made_alerts.rubin_record(version, number)
        record["diaSource"]["diaSourceId"] = number
        alerts.append(made_alerts.confluent(record, version))
    store(DirectoryObjects(tmp_path), alerts, tmp_path)
    files = f"{tmp_path}/alerts/lsst"
    key = "diaSource.diaSourceId"
    query = f"SELECT DISTINCT ON ({key}) {key}, diaSource.ra FROM read_parquet("
    rows = duckdb.sql(f"{query}'{files}/*/*/*.parquet', union_by_name = true)").fetchall()
    ids = {row[0] for row in rows}
    source = polars.col("diaSource").struct.field("diaSourceId")
    folders = sorted(Path(files).iterdir())
    read = [polars.scan_parquet(f"{folder}/*/*.parquet").select(source) for folder in folders]
    found = polars.concat(read).unique("diaSourceId").collect()
    assert set(found["diaSourceId"].to_list()) == ids
    assert found.height == len(rows) == len(ids) >= 2 * len(versions)


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCeph]:
    directory = tmp_path_factory.mktemp("ceph")
    with LocalCeph(directory, free_port(2), "memstore", gigabytes=1) as ceph:
        yield ceph


@pytest.mark.integration
def test_the_example_with_polars_gives_each_alert_once(
    ztf: list[bytes], ceph: LocalCeph, tmp_path: Path
) -> None:
    minio = minio_of(ceph)
    if minio.bucket_exists("stampede"):
        for found in minio.list_objects("stampede", recursive=True):
            minio.remove_object("stampede", found.object_name)
    else:
        minio.make_bucket("stampede")
    store(open_store(ceph.address("stampede")), ztf, tmp_path)
    page = ROOT / "docs" / "how-to" / "one-machine.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    up = tmp_path / ".local" / "share" / "stampede" / "up.json"
    up.parent.mkdir(parents=True)
    # As `up` writes it; this process stands for its own.
    running = {"pid": os.getpid(), "urls": {"read": "http://127.0.0.1:9"}}
    running |= {"store": ceph.address("stampede").url, **ceph.keys._asdict()}
    up.write_text(json.dumps(running))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ
        | {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "PYTHONPATH": str(ROOT / "client")},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(ztf)
