"""A night of two Stampedes on a real Ceph, and of alerts and ids in a bucket, by the command."""

import io
import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from minio import Minio
from typer.testing import CliRunner, Result

from stampede.cli.proofs import proofs
from stampede.config.settings import Settings
from stampede.errors import SetupError, StoreDown
from stampede.proofs.leaves import ids_of
from stampede.proofs.night_proof import latest_of, nights_of
from stampede.read.app import make_app
from stampede.store.open import open_objects
from stampede_local.ceph import LocalCeph
from tests.support.alerts import made_alerts
from tests.support.proofs import alerts, bodies, prove
from tests.support.read.read_service import serving
from tests.support.store.ceph import minio_of
from tests.support.store.stored_packets import store

pytestmark = pytest.mark.integration
COUNT = 80


class Site:
    """A store in a bucket of its own, and another bucket with files."""

    def __init__(self, ceph: LocalCeph, spool: Path) -> None:
        self.client: Minio = minio_of(ceph)
        self.bucket, self.files = (f"{name}-{uuid.uuid4().hex[:12]}" for name in ("a", "files"))
        for name in (self.bucket, self.files):
            self.client.make_bucket(bucket_name=name)
        self.settings = Settings(
            store=f"{ceph.endpoint}/{self.bucket}",
            access_key=ceph.keys.access_key,
            secret_key=ceph.keys.secret_key,
            spool=spool,
            refresh_seconds=0,
        )

    def put(self, key: str, data: bytes) -> None:
        """Put a file."""
        self.client.put_object(
            bucket_name=self.files, object_name=key, data=io.BytesIO(data), length=len(data)
        )

    def fill(self, messages: list[bytes]) -> None:
        """Store and prove."""
        store(self.settings, messages)
        prove(open_objects(self.settings))


@pytest.fixture
def ours(ceph: LocalCeph, tmp_path: Path) -> Site:
    return Site(ceph, tmp_path)


@pytest.fixture
def theirs(ceph: LocalCeph, tmp_path: Path) -> Site:
    return Site(ceph, tmp_path)


@pytest.fixture
def compare(ours: Site, ceph: LocalCeph, tmp_path: Path, monkeypatch) -> Callable[..., Result]:
    """Runs the command on our store."""
    variables = {
        "STAMPEDE_STORE": ours.settings.store,
        "STAMPEDE_ACCESS_KEY": ceph.keys.access_key,
        "STAMPEDE_SECRET_KEY": ceph.keys.secret_key,
        "AWS_ENDPOINT_URL": ceph.endpoint,
        "AWS_ACCESS_KEY_ID": ceph.keys.access_key,
        "AWS_SECRET_ACCESS_KEY": ceph.keys.secret_key,
        "COLUMNS": "200",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("stampede.cli.running.DATA", tmp_path / "none")
    monkeypatch.setattr("stampede.cli.running.OTHERS", tmp_path / "no-others")
    return lambda *words: CliRunner().invoke(proofs, ["compare", *words, "--json"])


def messages_of(seed: int) -> list[bytes]:
    """Simulated alerts, and real ones where they are there."""
    real = made_alerts.real_alerts() if made_alerts.REAL.exists() else []
    return [*bodies(alerts(COUNT, seed)), *real]


def counts(result: Result) -> dict[str, int]:
    """How many alerts differ, by how."""
    found: dict[str, int] = {}
    for line in result.stdout.splitlines():
        for kind, each in json.loads(line).items():
            if isinstance(each, dict):
                found[kind] = found.get(kind, 0) + each["count"]
    return found


@pytest.fixture
def messages(ours: Site, theirs: Site) -> list[bytes]:
    """What we have; the other site lacks the first three."""
    some = messages_of(3)
    ours.fill(some)
    theirs.fill(some[3:])
    return some


def test_sites_alerts_and_ids_are_compared(messages, compare, ours: Site, theirs: Site) -> None:
    for reader in serving(make_app(theirs.settings)):
        site = compare(reader.url)
    assert site.exit_code == 1
    assert counts(site) == {"only_here": 3}

    for number, message in enumerate([*messages[3:], messages[4]]):
        ours.put(f"avro/{number:03}.avro", message)
    files = compare(f"s3://{ours.files}/avro/")
    assert files.exit_code == 1
    assert counts(files) == {"only_here": 3, "twice_there": 1}

    out = io.BytesIO()
    pq.write_table(pa.table({"candid": sorted(proven(ours))[3:]}), out)
    ours.put("ids/some.parquet", out.getvalue())
    ids = compare(f"s3://{ours.files}/ids")
    assert ids.exit_code == 1
    assert counts(ids) == {"only_here": 3}


def proven(site: Site) -> set[int]:
    """The ids in all proofs of a site."""
    objects = open_objects(site.settings)
    latest = (latest_of(objects, *place)[-1] for place in nights_of(objects))
    return {each for proof in latest for each in ids_of(proof.leaves(objects).read()).tolist()}


def test_a_public_bucket_needs_no_keys(messages, compare, ours: Site, monkeypatch) -> None:
    for number, message in enumerate(messages):
        ours.put(f"{number:03}.avro", message)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    closed = compare(f"s3://{ours.files}")
    assert isinstance(closed.exception, StoreDown)
    anybody = {
        "Effect": "Allow",
        "Principal": {"AWS": ["*"]},
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": [f"arn:aws:s3:::{ours.files}", f"arn:aws:s3:::{ours.files}/*"],
    }
    policy = {"Version": "2012-10-17", "Statement": [anybody]}
    ours.client.set_bucket_policy(bucket_name=ours.files, policy=json.dumps(policy))
    public = compare(f"s3://{ours.files}")
    assert public.exit_code == 0, public.stdout
    assert counts(public) == {}


def test_an_empty_place_in_a_bucket_is_said(messages, compare, ours: Site) -> None:
    nothing = compare(f"s3://{ours.files}/nothing")
    assert isinstance(nothing.exception, SetupError)
    assert f"nothing in s3://{ours.files}/nothing" in nothing.exception.message
