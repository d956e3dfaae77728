"""Functions with users of their own at a real Ceph, who may do no more than they need."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from stampede.cli.main import app
from stampede.config.settings import Settings
from stampede.errors import SetupError, StoreRefused
from stampede.events.cloudevents.s3_events import headers_of, stored_event
from stampede.store.ceph.users import ROLES, Keys, S3Users
from stampede.store.objects.address import StoreAddress
from stampede.store.objects.object_store import Objects
from stampede.store.open import first_site, open_objects, open_store
from stampede_local.ceph import USER, LocalCeph
from tests.support.alerts import made_alerts
from tests.support.store.ceph import minio_of

PLACES = [
    "packs/61000/a.parquet",
    "packets/61000/a.parquet",
    "thumbnails/61000/a.parquet",
    "alerts/lsst/a/61000/a.parquet",
    "deadletters/cutouts/a.parquet",
    "tables/cutouts/a.parquet",
    "tables/detections/a.parquet",
    "tables/packets/a.parquet",
    "tables/positions/a.parquet",
    "tables/thumbnails/a.parquet",
    "state/a.json",
    "tap/6ccb2ed880-a/job",
]


@pytest.fixture
def may_make_users(ceph: LocalCeph) -> Iterator[None]:
    ceph.radosgw_admin("caps", "add", f"--uid={USER}", "--caps=users=*")
    yield
    ceph.radosgw_admin("caps", "rm", f"--uid={USER}", "--caps=users=*")


@pytest.fixture
def users(bucket: Settings, may_make_users: None) -> Iterator[dict[str, Keys]]:
    made = S3Users(first_site(bucket))
    yield made.make(print)
    made.remove(print)


def objects_of(bucket: Settings, keys: Keys) -> Objects:
    return open_store(StoreAddress(bucket.store, *keys))


def may(attempt, *arguments: object) -> bool:
    try:
        attempt(*arguments)
    except StoreRefused:
        return False
    return True


@pytest.mark.parametrize("role", ROLES)
def test_a_user_may_do_what_its_function_does_and_nothing_else(
    bucket: Settings, users: dict[str, Keys], role: str
) -> None:
    owner, user = open_objects(bucket), objects_of(bucket, users[role])
    for key in PLACES:
        owner.put(key, b"data")
    reads, writes, deletes = ROLES[role]
    assert len(list(user.list(""))) == len(PLACES)
    assert [key for key in PLACES if may(user.get, key)] == [
        key for key in PLACES if key.startswith(reads)
    ]
    assert [key for key in PLACES if may(user.put, key, b"other")] == [
        key for key in PLACES if key.startswith(writes)
    ]
    deleted = [key for key in PLACES if may(user.delete, key)]
    assert deleted == [key for key in PLACES if key.startswith(deletes)]
    for key in set(PLACES) - {*deleted}:  # what the user stored is the owner's too
        assert owner.get(key) == (b"other" if key.startswith(writes) else b"data")
        owner.delete(key)


def test_a_system_of_such_users_stores_and_serves(
    bucket: Settings, users: dict[str, Keys], serve
) -> None:
    def start(role: str, **env: object):
        access_key, secret_key = users[role]
        site = {"STORE": bucket.store, "ACCESS_KEY": access_key, "SECRET_KEY": secret_key}
        return serve(role, **site, **env)

    alert = made_alerts.ztf_alert()
    for role in ("cutouts", "lightcurves"):
        served = start(role)
        assert served.post(1, alert).status == 204
        refused = served.post(2, b"no alert")
        assert refused.status == 400
    assert start("deadletters").post(2, b"no alert", path="/cutouts").status == 204
    thumbnails = start("thumbnails")
    owner = open_objects(bucket)
    (pack,) = owner.list("packs/")
    event = stored_event("any", "us-east-1", pack.key)
    drawn = thumbnails.http.request(
        "POST", thumbnails.url, body=event.data, headers=headers_of(event)
    )
    assert drawn.status == 204, drawn.data
    read = start("read")
    candid = 2430301980815015000
    for path in ("", "/cutouts/science", "/packet", "/thumbnail"):
        response = read.http.request("GET", f"{read.url}/v1/alerts/{candid}{path}")
        assert response.status == 200, (path, response.data)


def test_users_of_a_tenant_are_of_that_tenant(ceph: LocalCeph) -> None:
    """Where RGW has tenants, names of users and buckets are those of the owner's tenant."""
    keys = Keys("T" * 20, "t" * 40)
    named = ("--tenant=north", "--uid=of-a-tenant")
    given = (f"--access-key={keys.access_key}", f"--secret-key={keys.secret_key}")
    ceph.radosgw_admin("user", "create", *named, "--display-name=north", *given)
    bucket = Settings(store=f"{ceph.endpoint}/alerts", access_key=keys[0], secret_key=keys[1])
    open_objects(bucket).ensure_bucket()
    made = S3Users(first_site(bucket))
    with pytest.raises(SetupError, match=r"--uid='north\$of-a-tenant' --caps"):
        made.make(print)
    ceph.radosgw_admin("caps", "add", *named, "--caps=users=*")
    users = made.make(print)
    assert made.make(print) == users
    written, key = objects_of(bucket, users["cutouts"]), "packs/61000/a.parquet"
    written.put(key, b"data")
    assert open_objects(bucket).get(key) == objects_of(bucket, users["read"]).get(key) == b"data"
    open_objects(bucket).put("packs/61000/b.parquet", b"the owner's")
    assert not may(written.get, "packs/61000/b.parquet")
    assert not may(written.delete, key)
    made.remove(print)
    assert not may(written.put, key, b"other")


def test_making_them_again_changes_nothing(
    bucket: Settings, users: dict[str, Keys], ceph: LocalCeph
) -> None:
    minio, name = minio_of(ceph), bucket.store.rpartition("/")[2]
    policy = json.loads(minio.get_bucket_policy(bucket_name=name))
    other = policy["Statement"][0] | {"Sid": "another's"}
    policy["Statement"].append(other)
    minio.set_bucket_policy(bucket_name=name, policy=json.dumps(policy))
    said: list[str] = []
    assert S3Users(first_site(bucket)).make(said.append) == users
    assert {line.rpartition(": ")[2] for line in said[:-1]} == {"is there"}
    now = json.loads(minio.get_bucket_policy(bucket_name=name))["Statement"]
    assert sorted(map(str, now)) == sorted(map(str, policy["Statement"]))


def test_a_user_that_was_removed_may_do_nothing_and_the_owner_everything(
    bucket: Settings, may_make_users: None
) -> None:
    made = S3Users(first_site(bucket))
    keys = made.make(print)["cutouts"]
    objects_of(bucket, keys).put("packs/61000/a.parquet", b"data")
    made.remove(print)
    assert not may(objects_of(bucket, keys).put, "packs/61000/a.parquet", b"other")
    owner = open_objects(bucket)
    assert owner.get("packs/61000/a.parquet") == b"data"
    owner.delete("packs/61000/a.parquet")
    made.remove(print)  # harmless


def test_without_the_capability_the_message_has_the_command(bucket: Settings) -> None:
    with pytest.raises(
        SetupError, match=r"radosgw-admin caps add --uid=stampede --caps='users=\*'"
    ):
        S3Users(first_site(bucket)).make(print)


def test_at_a_local_ceph_the_command_of_the_message_works_as_it_stands(
    bucket: Settings, ceph: LocalCeph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, data = first_site(bucket), tmp_path / "data of up"
    data.mkdir()
    (data / "ceph").symlink_to(ceph.directory)
    running = {"pid": os.getpid(), "urls": {}, "logs": {"radosgw": "radosgw.log"}}
    running |= {"store": site.url, "access_key": site.access_key, "secret_key": site.secret_key}
    (data / "up.json").write_text(json.dumps(running))
    denied = CliRunner().invoke(app, ["users", "--data", str(data)])
    assert isinstance(denied.exception, SetupError)
    message, _, command = denied.exception.message.partition(": it answered ")
    assert message.endswith("lets us make no users")
    answered, _, command = command.partition("; on Ceph, allow it for a while: ")
    assert answered == "403 AccessDenied"
    monkeypatch.delenv("CEPH_CONF", raising=False)
    try:
        subprocess.run(command, shell=True, check=True, capture_output=True, timeout=200)
        S3Users(site).make(print)
    finally:
        ceph.radosgw_admin("caps", "rm", f"--uid={USER}", "--caps=users=*")


def test_the_command_prints_secrets(
    bucket: Settings, may_make_users: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = first_site(bucket)
    monkeypatch.setenv("STAMPEDE_STORE", site.url)
    monkeypatch.setenv("STAMPEDE_ACCESS_KEY", site.access_key)
    monkeypatch.setenv("STAMPEDE_SECRET_KEY", site.secret_key)
    run = CliRunner().invoke
    result = run(app, ["users", "--secrets", "keys"])
    assert result.exit_code == 0, result.output
    found = {each["metadata"]["name"]: each for each in yaml.safe_load_all(result.stdout)}
    assert set(found) == {f"keys-{role}" for role in ROLES}
    data = found["keys-read"]["stringData"]
    assert not may(objects_of(bucket, Keys(*data.values())).put, "packs/1", b"data")
    shown = json.loads(run(app, ["users", "--policy"]).stdout)["Statement"]
    assert f"arn:aws:iam:::user/{USER}" in shown[0]["Principal"]["AWS"]
    assert run(app, ["users", "--remove"]).exit_code == 0
