"""Functions, relay, broker and source as processes with a key: only who knows it is heard."""

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stampede.config.settings import Settings
from stampede.handlers.server import is_loopback
from stampede.store.open import open_objects
from tests.support.alerts import made_alerts
from tests.support.events.receiver import Receiver
from tests.support.store.s3_notifications import JSON, record, records

KEY = "the-key-of-these-tests"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("all", False)],
)
def test_which_hosts_only_this_machine_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(Settings(host=host)) == loopback


@pytest.mark.integration
def test_the_key_is_in_no_object_and_no_log(serve, tmp_path: Path) -> None:
    """Every object of both alert functions and of the dead letters, column by column."""
    sent = {"authorization": f"Bearer {KEY}", "ce-accesskey": KEY}
    good = made_alerts.confluent(made_alerts.rubin_record(1101, 1), 1101)
    logs = []
    for name in ("cutouts", "lightcurves", "deadletters"):
        served = serve(name, EVENT_KEY=KEY)
        path = "/cutouts" if name == "deadletters" else "/"
        assert served.post(0, good, path).status == 401
        assert served.post(0, good, path, **sent).status == 204
        if path == "/":
            assert served.post(1, b"no alert", path, **sent).status == 400
        logs.append(served.process.log)
    objects = open_objects(served.settings)
    keys = [info.key for info in objects.list("")]
    assert {key.partition("/")[0] for key in keys} >= {"packs", "tables", "alerts", "deadletters"}
    for key in keys:
        data = objects.get(key)
        assert KEY.encode() not in data, key
        if key.endswith(".parquet"):
            assert KEY not in repr(pq.read_table(io.BytesIO(data)).to_pylist()), key
    for log in logs:
        assert "not-authorized" in log.read_text()
        assert KEY not in log.read_text()


@pytest.mark.integration
def test_a_notification_carries_the_key_to_the_function(serve, tmp_path: Path) -> None:
    """From the S3 endpoint, which has it in its URL, by way of the Broker."""
    with Receiver() as function:
        subscribers = json.dumps({"stampede-thumbnails": function.url})
        broker = serve("broker", SUBSCRIBERS=subscribers, EVENT_KEY=KEY)
        relay = serve("notifications", SINK=broker.url, HOLD_SECONDS=1, EVENT_KEY=KEY)
        body = records(record("packs/61000/0a.parquet"))
        for path, status in (("/", 401), ("/wrong", 401), (f"/{KEY}", 204)):
            response = relay.http.request("POST", relay.url + path, body=body, headers=JSON)
            assert response.status == status
        (event,) = function.accepted
        assert event.headers["authorization"] == f"Bearer {KEY}"
        assert "ce-accesskey" not in event.headers
        assert KEY not in relay.process.tail() + broker.process.tail()


@pytest.mark.integration
def test_a_broker_passes_the_attribute_on(serve) -> None:
    """A Knative Broker leaves extension attributes as they are."""
    with Receiver() as broker:
        relay = serve("notifications", SINK=broker.url, HOLD_SECONDS=1, EVENT_KEY=KEY)
        body = records(record("packs/61000/0a.parquet"))
        relay.http.request("POST", f"{relay.url}/{KEY}", body=body, headers=JSON)
        (event,) = broker.accepted
        assert event.headers["ce-accesskey"] == KEY
        assert "authorization" not in event.headers
