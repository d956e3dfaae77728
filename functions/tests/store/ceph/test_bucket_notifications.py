"""`stampede setup`, on a real Ceph."""

import re
import time
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import SetupError, StoreDown
from stampede.store.ceph import bucket_notifications
from stampede.store.open import first_site, open_objects
from stampede_local.ceph import LocalCeph
from stampede_local.ports import free_port
from tests.support.events.receiver import Receiver
from tests.support.store.ceph import minio_of
from tests.support.waiting import eventually

SERVED = 60  # seconds; a new topic is served within 30 s
NAMES = ["packs", "thumbnails", "packets", "tables", "alerts", "deadletters", "probes/sent"]


def run(settings: Settings, to: str | None = "http://127.0.0.1:9/", **more: object) -> list[str]:
    lines: list[str] = []
    update = {"notifications": to or "", **more}
    bucket_notifications.setup(settings.model_copy(update=update), lines.append)
    return lines


@pytest.fixture
def new_bucket(ceph: LocalCeph) -> Settings:
    """Settings of a bucket that does not exist."""
    store = f"{ceph.endpoint}/new-{free_port()}-{time.monotonic_ns()}"
    return Settings(store=store, access_key=ceph.keys.access_key, secret_key=ceph.keys.secret_key)


def topics_of(settings: Settings) -> list[str]:
    site = bucket_notifications.NotifyingBucket(first_site(settings))
    return [topic.endpoint for topic in site.topics() if topic.name == site.topic_name]


def prefixes_of(ceph: LocalCeph, settings: Settings) -> list[str]:
    bucket = settings.store.rpartition("/")[2]
    found = minio_of(ceph).get_bucket_notification(bucket_name=bucket).topic_config_list
    return [each.prefix_filter_rule.value for each in found or ()]


def test_remove_is_harmless_without_a_bucket(new_bucket: Settings) -> None:
    lines: list[str] = []
    bucket_notifications.remove(new_bucket, lines.append)
    assert lines == ["the buckets and all objects in them stay"]


def test_it_makes_and_reports_what_is_missing(ceph: LocalCeph, new_bucket: Settings) -> None:
    bucket, topic, *notifications = run(new_bucket)
    assert re.fullmatch(r"bucket new-\S+: made", bucket)
    assert re.fullmatch(r"topic stampede-new-\S+: made, pushes to http://127.0.0.1:9; .*", topic)
    assert [re.sub(", for.*", "", line) for line in notifications] == [
        f"notification stampede-{name.replace('/', '-')}: made" for name in NAMES
    ]
    assert sorted(prefixes_of(ceph, new_bucket)) == sorted(f"{name}/" for name in NAMES)
    assert topics_of(new_bucket) == ["http://127.0.0.1:9/"]


def test_again_it_changes_nothing(ceph: LocalCeph, new_bucket: Settings) -> None:
    first = run(new_bucket)
    again = run(new_bucket)
    assert len(again) == len(first)
    assert all(": is there" in line for line in again)
    assert len(prefixes_of(ceph, new_bucket)) == len(NAMES)


def test_it_makes_a_notification_that_is_missing(ceph: LocalCeph, new_bucket: Settings) -> None:
    run(new_bucket)
    bucket = new_bucket.store.rpartition("/")[2]
    bucket_notifications.NotifyingBucket(first_site(new_bucket))._send(
        "DELETE", f"/{bucket}", {"notification": "stampede-tables"}
    )
    assert "tables/" not in prefixes_of(ceph, new_bucket)
    made = [line for line in run(new_bucket) if ": is there" not in line]
    assert made == [f"notification stampede-tables: made, for {bucket}/tables/*"]


def test_remove_deletes_its_own_notifications_and_no_data(
    ceph: LocalCeph, new_bucket: Settings
) -> None:
    run(new_bucket)
    open_objects(new_bucket).put("packs/1", b"data")
    lines: list[str] = []
    bucket_notifications.remove(new_bucket, lines.append)
    assert len([line for line in lines if line.endswith(": removed")]) == len(NAMES) + 1
    assert not prefixes_of(ceph, new_bucket)
    assert not topics_of(new_bucket)
    assert open_objects(new_bucket).get("packs/1") == b"data"
    again: list[str] = []
    bucket_notifications.remove(new_bucket, again.append)
    assert again == ["the buckets and all objects in them stay"]
    assert all(": is there" in line or ": made" in line for line in run(new_bucket))


def test_without_a_receiver_there_is_just_the_bucket(ceph: LocalCeph, new_bucket: Settings) -> None:
    bucket, line = run(new_bucket, to=None)
    assert bucket.endswith(": made")
    assert line.startswith("STAMPEDE_NOTIFICATIONS is not set")
    assert not topics_of(new_bucket)


def test_the_second_site_has_a_bucket_and_no_more(ceph: LocalCeph, new_bucket: Settings) -> None:
    replica = new_bucket.model_copy(update={"store": f"{new_bucket.store}-copy"})
    lines = run(
        new_bucket,
        replica=replica.store,
        replica_access_key=new_bucket.access_key,
        replica_secret_key=new_bucket.secret_key,
    )
    assert lines[1] == f"bucket {replica.store.rpartition('/')[2]}: made"
    assert not topics_of(replica)
    assert not prefixes_of(ceph, replica)


def test_installations_on_one_bucket_do_not_silence_each_other(
    ceph: LocalCeph, new_bucket: Settings
) -> None:
    """Each has notifications of its own; one that is removed leaves the other's."""
    with Receiver() as one, Receiver() as other:
        run(new_bucket, one.url, installation="sky-one")
        run(new_bucket, other.url, installation="sky-other")
        open_objects(new_bucket).put("packs/1", b"data")
        for receiver in (one, other):
            eventually(lambda receiver=receiver: bool(receiver.accepted), SERVED)
            assert b"packs/1" in receiver.accepted[0].body
        named = {"installation": "sky-one", "notifications": one.url}
        bucket_notifications.remove(new_bucket.model_copy(update=named), list[str]().append)
        assert sorted(prefixes_of(ceph, new_bucket)) == sorted(f"{name}/" for name in NAMES)
        before = len(one.accepted)
        open_objects(new_bucket).put("packs/2", b"data")
        eventually(lambda: any(b"packs/2" in each.body for each in other.accepted), SERVED)
        assert len(one.accepted) == before


def test_a_named_installation_replaces_what_it_made_without_a_name(
    ceph: LocalCeph, new_bucket: Settings
) -> None:
    run(new_bucket, "http://127.0.0.1:9/an-old-key")
    lines = run(new_bucket, "http://127.0.0.1:9/a-key", installation="sky-one")
    assert len([line for line in lines if line.endswith(": removed")]) == len(NAMES) + 1
    assert not topics_of(new_bucket)
    assert len(prefixes_of(ceph, new_bucket)) == len(NAMES)


def test_a_named_installation_leaves_another_s_without_a_name(
    ceph: LocalCeph, new_bucket: Settings
) -> None:
    run(new_bucket, "http://127.0.0.1:9/")
    run(new_bucket, "http://127.0.0.1:11/", installation="sky-one")
    assert topics_of(new_bucket) == ["http://127.0.0.1:9/"]
    assert len(prefixes_of(ceph, new_bucket)) == 2 * len(NAMES)


def test_a_directory_needs_nothing(tmp_path: Path) -> None:
    (line,) = run(Settings(store=f"file://{tmp_path}"))
    assert "no notifications" in line


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"secret_key": "wrong"}, SetupError, "for bucket new-"),
        (
            {"to": "receiver:80"},
            SetupError,
            "STAMPEDE_NOTIFICATIONS is not an http.* URL: receiver:80",
        ),
        ({"store": "http://127.0.0.1:9/bucket"}, StoreDown, "http://127.0.0.1:9/ does not answer"),
    ],
)
def test_settings_that_cannot_work(
    new_bucket: Settings, wrong: dict, error: type, message: str
) -> None:
    settings = Settings(
        store=wrong.pop("store", new_bucket.store),
        access_key=new_bucket.access_key,
        secret_key=wrong.pop("secret_key", new_bucket.secret_key.get_secret_value()),
    )
    with pytest.raises(error, match=message):
        run(settings, **wrong)
