"""An S3 server that is not Ceph: what works with it, and what it lacks, as docs/explanation says.

`tests/store/objects/test_object_store.py` holds it to the contract of all stores.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from stampede.cli.main import app
from stampede.config.settings import Settings
from stampede.errors import NotFound, SetupError, StoreRefused
from stampede.handlers.compact import compact_tables
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.handlers.scrub.handler import scrub_sites
from stampede.read.app import make_app
from stampede.store.ceph.bucket_notifications import NotifyingBucket
from stampede.store.integrity import scrub_state
from stampede.store.objects.object_store import Objects
from stampede.store.open import first_site, open_objects
from stampede.store.s3.bucket import S3Objects
from tests.support.events.receiver import Receiver
from tests.support.read.answers import Answer, Request, ask, requests_of, same
from tests.support.store.whole_store import Filled, fill_store
from tests.support.versitygw import VersityGateway
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def environment(gateway_bucket: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The bucket as settings of commands."""
    monkeypatch.setenv("STAMPEDE_STORE", gateway_bucket.store)
    monkeypatch.setenv("STAMPEDE_ACCESS_KEY", gateway_bucket.access_key)
    monkeypatch.setenv("STAMPEDE_SECRET_KEY", gateway_bucket.secret_key.get_secret_value())
    return gateway_bucket


def contents(objects: Objects) -> dict[str, bytes]:
    return {info.key: objects.get(info.key) for info in objects.list("")}


def test_check_store_finds_nothing_wrong(environment: Settings, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["check-store", "--data", str(tmp_path)])
    assert done.exit_code == 0, done.output
    *lines, times = done.output.splitlines()
    assert len(lines) == 10
    assert all(line.endswith(": ok") for line in lines), lines
    assert times.startswith("times of requests, p50/p99: write ")
    assert contents(open_objects(environment)) == {}


async def answers(filled: Filled) -> dict[Request, Answer]:
    app = make_app(filled.settings, filled.objects)
    found = {request: await ask(app, request) for request in requests_of(filled)}
    await app.state.service.close()
    return found


@pytest.mark.anyio
async def test_alerts_are_stored_merged_and_read_as_from_a_directory(
    gateway_bucket: Settings, tmp_path: Path
) -> None:
    on_gateway = gateway_bucket.model_copy(update={"spool": tmp_path, "grace_seconds": 0})
    there = fill_store(tmp_path, on_gateway)
    here = fill_store(tmp_path / "here")
    assert len(there.alert_ids) > 50
    truth, found = await answers(here), await answers(there)
    # The pages of nights and of the ledger show when objects were stored.
    # So does the list of the latest alerts, where those of one second may come in any order.
    compared = [
        one
        for one in truth
        if one.path.startswith(("/v1/", "/alerts/", "/objects/"))
        and one.path.partition("?")[0] != "/v1/alerts"
    ]
    assert sum(truth[one].status == 200 for one in compared) > 50
    assert [one.path for one in compared if not same(found[one], truth[one])] == []
    compact_tables(on_gateway)
    again = await answers(there)
    assert [one.path for one in compared if not same(again[one], truth[one])] == []


def test_scrub_reads_all_and_finds_what_was_damaged(
    gateway_bucket: Settings, tmp_path: Path
) -> None:
    settings = gateway_bucket.model_copy(update={"spool": tmp_path, "scrub_days": 0})
    objects = fill_store(tmp_path, settings).objects
    scrub_sites(settings)
    state = scrub_state.load(objects, "store")
    assert state is not None
    assert (state.done, state.left) == (True, ())
    sound = deep_audit(settings, ["store"])
    assert sound.faults == []
    assert sound.totals["store"].objects > 20
    [pack, *_] = [info.key for info in objects.list("packs/")]
    data = bytearray(objects.get(pack))
    data[len(data) // 2] ^= 1
    objects.put(pack, bytes(data))
    assert {fault.key for fault in deep_audit(settings, ["store"]).faults} == {pack}


def test_reconcile_works_without_topics(gateway_bucket: Settings, tmp_path: Path) -> None:
    settings = gateway_bucket.model_copy(update={"spool": tmp_path, "grace_seconds": 0})
    fill_store(tmp_path, settings)
    with Receiver() as broker:
        Reconciler(settings.model_copy(update={"sink": broker.url})).run()
        told = {event.headers["ce-subject"] for event in broker.accepted}
    assert told  # the packs that no thumbnail was drawn for
    assert all(key.startswith("packs/") for key in told)


# -- what it lacks


def test_it_has_no_topics_and_the_doctor_says_what_does_their_work(
    environment: Settings, tmp_path: Path
) -> None:
    with pytest.raises(SetupError, match="does not have the topics API of Ceph's RGW"):
        NotifyingBucket(first_site(environment)).topic()
    done = CliRunner().invoke(app, ["doctor", "--data", str(tmp_path)])
    [line] = [line for line in done.output.splitlines() if "notifications:" in line]
    assert line.startswith("-  notifications: not examined: STAMPEDE_NOTIFICATIONS is not set")
    assert "`reconcile` sends the events" in line
    assert line.endswith("it answered 405 MethodNotAllowed")
    assert "ok store" in done.output


def test_with_a_url_for_notifications_that_is_a_fault(
    environment: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAMPEDE_NOTIFICATIONS", "http://127.0.0.1:9/")
    done = CliRunner().invoke(app, ["doctor", "--data", str(tmp_path)])
    assert "ERROR notifications" in done.output
    assert done.exit_code == 2


@pytest.fixture
def notifying(serve, tmp_path: Path) -> Iterator[tuple[VersityGateway, Receiver]]:
    """versitygw that sends notifications to the relay, and what stands for the Broker."""
    with Receiver() as broker:
        relay = serve("notifications", SINK=broker.url, HOLD_SECONDS=1)
        filter_file = tmp_path / "filter.json"
        filter_file.write_text(json.dumps({"s3:ObjectCreated:*": True}))
        options = ("--event-webhook-url", relay.url, "--event-filter", str(filter_file))
        with VersityGateway(tmp_path / "notifying", *options) as gateway:
            yield gateway, broker


def test_the_relay_takes_the_notifications_of_its_webhook(notifying) -> None:
    gateway, broker = notifying
    objects = open_objects(gateway.settings("stampede"))
    objects.ensure_bucket()
    objects.put("packs/61000/0a.parquet", b"x")
    objects.delete("packs/61000/0a.parquet")
    objects.put("thumbnails/61000/0b.parquet", b"x")
    stored = ["packs/61000/0a.parquet", "thumbnails/61000/0b.parquet"]
    eventually(lambda: sorted(event.headers["ce-subject"] for event in broker.accepted) == stored)
    assert {event.headers["ce-type"] for event in broker.accepted} == {
        "com.amazonaws.s3.ObjectCreated:Put"
    }


def test_a_key_cannot_be_a_folder_too(gateway_bucket: Settings) -> None:
    """Stampede stores no such keys: its objects are files of this server."""
    objects = open_objects(gateway_bucket)
    objects.put("a", b"x")
    with pytest.raises(Exception, match="ObjectParentIsFile"):
        objects.put("a/b", b"x")


def test_an_unknown_access_key_is_refused_but_a_head_finds_nothing(
    gateway_bucket: Settings,
) -> None:
    """It answers 404, as for an object that is missing; the answer to a HEAD has no code."""
    open_objects(gateway_bucket).put("a", b"x")
    stranger = gateway_bucket.model_copy(update={"access_key": "nobody"})
    objects = S3Objects(first_site(stranger))
    with pytest.raises(StoreRefused, match="it does not know the access key"):
        objects.get("a")
    with pytest.raises(NotFound):
        objects.head("a")
    wrong = gateway_bucket.model_copy(update={"secret_key": SecretStr("wrong")})
    with pytest.raises(StoreRefused):
        S3Objects(first_site(wrong)).head("a")
