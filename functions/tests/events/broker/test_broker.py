"""`events/broker/broker.py` and `events/broker/notification_relay.py` as processes.

The tests receive the events that these send.
"""

import json
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pytest
import urllib3
import yaml

from stampede.config.settings import Settings
from stampede.events.http.probes import is_ready
from stampede_local.ports import free_port
from stampede_local.process import Process, wait_until
from tests.support.events.receiver import Received, Receiver, Reply
from tests.support.served import Served
from tests.support.store.s3_notifications import DIALECTS, JSON, record, records

# Starts processes: too slow for the quick loop.
pytestmark = pytest.mark.integration

STORED = "com.amazonaws.s3.ObjectCreated:Put"


def event(key: str, kind: str = STORED) -> dict[str, str]:
    return {
        "ce-specversion": "1.0",
        "ce-type": kind,
        "ce-source": "aws:s3.r.stampede",
        "ce-id": f"id of {key}".replace(" ", "%20"),
        "ce-subject": key,
        "ce-more": "kept",
        "content-type": "application/json",
    }


def trigger(name: str, prefix: str, **delivery: object) -> dict:
    ref = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": f"stampede-{name}"}
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {"name": name},
        "spec": {
            "broker": "stampede",
            "filters": [{"prefix": {"subject": prefix}}],
            "subscriber": {"ref": ref},
            "delivery": {"backoffDelay": "PT0.1S", **delivery},
        },
    }


def ref_of(name: str) -> dict:
    return trigger(name, "x")["spec"]["subscriber"]


class Subscribers:
    """Receivers by name, and a broker that sends to them."""

    def __init__(self, serve, tmp_path: Path, stack: ExitStack) -> None:
        self._serve, self._path, self._stack = serve, tmp_path / "triggers.yaml", stack
        self.at: dict[str, Receiver] = {}

    def __getitem__(self, name: str) -> Receiver:
        if name not in self.at:
            self.at[name] = self._stack.enter_context(Receiver())
        return self.at[name]

    def broker(self, *triggers: dict, running: tuple[str, ...] = ()) -> Served:
        """A broker with these Triggers, and the named subscribers."""
        self._path.write_text(yaml.safe_dump_all(triggers))
        return self.broker_of(self._path, *running)

    def broker_of(self, path: Path, *running: str) -> Served:
        urls = {f"stampede-{name}": self[name].url for name in running}
        return self._serve("broker", TRIGGERS=path, SUBSCRIBERS=json.dumps(urls))

    def got(self, name: str) -> list[str]:
        return [each.headers["ce-subject"] for each in self[name].accepted]


@pytest.fixture
def subscribers(serve, tmp_path: Path) -> Iterator[Subscribers]:
    with ExitStack() as stack:
        yield Subscribers(serve, tmp_path, stack)


def send(broker: Served, key: str, kind: str = STORED) -> tuple[int, str]:
    response = broker.http.request("POST", broker.url, body=b'{"a": 1}', headers=event(key, kind))
    return response.status, response.data.decode()


def answering(*statuses: int):
    """Answer with these statuses in turn, then always with the last."""

    def answer(_: Received, times: int) -> Reply:
        status = statuses[min(times, len(statuses)) - 1]
        return status, b"" if status == 204 else b"so it is", {}

    return answer


def test_an_event_goes_to_every_matching_trigger_and_to_no_other(subscribers) -> None:
    broker = subscribers.broker(
        trigger("a", "packs/"),
        trigger("b", "packs/"),
        trigger("c", "tables/"),
        running=("a", "b", "c"),
    )
    assert send(broker, "packs/1") == (202, "")
    assert send(broker, "tables/2") == (202, "")
    assert send(broker, "nobody's") == (202, "")
    assert subscribers.got("a") == subscribers.got("b") == ["packs/1"]
    assert subscribers.got("c") == ["tables/2"]


def test_an_event_arrives_unchanged(subscribers) -> None:
    broker = subscribers.broker(trigger("a", "packs/"), running=("a",))
    send(broker, "packs/1")
    (got,) = subscribers["a"].accepted
    assert got.body == b'{"a": 1}'
    sent = event("packs/1")
    assert {name: got.headers.get(name) for name in sent} == sent


def test_retries_are_those_of_the_trigger(subscribers) -> None:
    subscribers["a"].answer = answering(503, 500, 204)
    broker = subscribers.broker(trigger("a", "packs/", retry=2), running=("a",))
    begin = time.monotonic()
    assert send(broker, "packs/1")[0] == 202
    assert time.monotonic() - begin > 0.59  # 0.2 + 0.4: 0.1 s, doubled at each; timers count ms
    assert len(subscribers["a"].requests) == 3


def test_an_event_is_accepted_only_when_every_subscriber_has_it(subscribers) -> None:
    subscribers["a"].answer = answering(503, 503, 204)
    broker = subscribers.broker(
        trigger("a", "packs/", retry=1), trigger("b", "packs/"), running=("a", "b")
    )
    status, detail = send(broker, "packs/1")
    assert status == 500
    assert "Trigger a: " in detail
    assert "503: so it is" in detail
    assert subscribers.got("b") == ["packs/1"]
    assert send(broker, "packs/1")[0] == 202
    assert subscribers.got("a") == ["packs/1"]
    assert subscribers.got("b") == ["packs/1"] * 2


def test_a_subscriber_that_is_down(subscribers) -> None:
    subscribers["a"].__exit__()
    broker = subscribers.broker(trigger("a", "packs/", retry=1), running=("a",))
    assert send(broker, "packs/1")[0] == 500
    with subscribers["a"]:
        assert send(broker, "packs/1")[0] == 202
        assert subscribers.got("a") == ["packs/1"]
    subscribers["a"].__enter__()


def test_a_subscriber_that_does_not_answer_in_time(subscribers) -> None:
    subscribers["a"].delay = 40
    broker = subscribers.broker(trigger("a", "packs/", timeout="PT0.5S"), running=("a",))
    begin = time.monotonic()
    status, detail = send(broker, "packs/1")
    assert status == 500
    assert "no answer within" in detail
    assert time.monotonic() - begin < 600


def test_a_refused_event_is_dropped_and_logged(subscribers) -> None:
    """A retry would block the sender, and its later events, for ever."""
    subscribers["a"].answer = answering(400)
    broker = subscribers.broker(trigger("a", "packs/", retry=5), running=("a",))
    assert send(broker, "packs/1")[0] == 202
    assert len(subscribers["a"].requests) == 1
    log = [json.loads(line) for line in broker.process.tail().splitlines()]
    (line,) = [line for line in log if line["event"] == "event dropped"]
    assert line["trigger"] == "a"
    assert line["subject"] == "packs/1"
    assert line["reason"] == "so it is"
    metrics = broker.http.request("GET", f"{broker.url}/metrics").data.decode()
    assert 'stampede_broker_events_total{outcome="dropped",trigger="a"} 1.0' in metrics


@pytest.mark.parametrize(("status", "times"), [(400, 1), (503, 2)])
def test_dead_letters(subscribers, status: int, times: int) -> None:
    subscribers["a"].answer = answering(status)
    broker = subscribers.broker(
        trigger("a", "packs/", retry=1, deadLetterSink=ref_of("letters")), running=("a", "letters")
    )
    assert send(broker, "packs/1")[0] == 202
    assert len(subscribers["a"].requests) == times
    (letter,) = subscribers["letters"].accepted
    assert letter.headers["ce-knativeerrorcode"] == str(status)
    assert letter.headers["ce-knativeerrordest"] == subscribers["a"].url
    assert letter.headers["ce-subject"] == "packs/1"
    assert letter.body == b'{"a": 1}'


def test_dead_letters_that_are_down_too(subscribers) -> None:
    subscribers["a"].answer = answering(400)
    subscribers["letters"].answer = answering(503)
    broker = subscribers.broker(
        trigger("a", "packs/", deadLetterSink=ref_of("letters")), running=("a", "letters")
    )
    assert send(broker, "packs/1")[0] == 500


@pytest.mark.parametrize("status", [500, 503])
def test_an_event_that_fails_alone_stops_no_other(subscribers, status: int) -> None:
    """As the pack that was deleted before its thumbnails were drawn."""
    subscribers["a"].answer = lambda each, times: (
        (status, b"so it is", {}) if each.headers["ce-subject"] == "packs/0" else (204, b"", {})
    )
    broker = subscribers.broker(trigger("a", "packs/", retry=5), running=("a",))
    responses, number, begin = [500], 0, time.monotonic()
    while responses[-1] != 202:
        assert time.monotonic() - begin < 120
        with ThreadPoolExecutor(2) as pool:  # as RGW: it repeats the one, and sends the others
            again = pool.submit(send, broker, "packs/0")
            while not again.done():
                number += 1
                assert send(broker, f"packs/{number}")[0] == 202
                time.sleep(0.1)
            responses.append(again.result()[0])
    assert '"event": "event dropped"' in broker.process.tail()


def test_a_new_trigger_adds_a_function(subscribers, tmp_path: Path) -> None:
    """What eventing/README.md promises: no code changes."""
    ours = Settings().triggers.read_text()
    more = tmp_path / "more.yaml"
    more.write_text(f"{ours}---\n{yaml.safe_dump(trigger('mine', 'alerts/ztf/'))}")
    broker = subscribers.broker_of(more, "thumbnails", "replicate", "mine")
    for key in ("packs/61000/0a.parquet", "alerts/ztf/61000/0b.parquet"):
        assert send(broker, key)[0] == 202
    assert subscribers.got("mine") == ["alerts/ztf/61000/0b.parquet"]
    assert subscribers.got("thumbnails") == ["packs/61000/0a.parquet"]
    assert len(subscribers.got("replicate")) == 2


def test_a_trigger_without_its_subscriber_is_skipped(subscribers) -> None:
    broker = subscribers.broker_of(Settings().triggers, "thumbnails")
    assert send(broker, "packs/61000/0a.parquet")[0] == 202
    assert '"subscriber": "none here"' in broker.process.tail()
    assert subscribers.got("thumbnails") == ["packs/61000/0a.parquet"]


def test_a_request_without_an_event_is_refused(subscribers) -> None:
    broker = subscribers.broker_of(Settings().triggers)
    response = broker.http.request("POST", broker.url, body=b"{}", headers=JSON)
    assert response.status == 400


# -- the relay


@pytest.fixture
def relay(serve):
    """A relay to a receiver that stands for the Broker."""
    with Receiver() as sink:
        yield serve("notifications", SINK=sink.url, HOLD_SECONDS=1), sink


def post(relay: Served, headers: dict[str, str], body: bytes):
    return relay.http.request("POST", relay.url, body=body, headers=headers)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_relay_accepts_every_dialect(relay, dialect: str) -> None:
    relay, sink = relay
    assert post(relay, *DIALECTS[dialect]).status == 204
    (got,) = sink.accepted
    assert got.headers["ce-type"] == STORED
    assert got.headers["ce-subject"] == "packs/61000/0a.parquet"
    assert got.headers["content-type"] == "application/json"
    assert json.loads(unquote(got.body.decode()))["s3"] == record()["s3"]


def test_the_relay_identifies_itself_to_a_broker_that_requires_it(serve, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")

    def answer(event: Received, times: int) -> Reply:
        return (204 if event.headers.get("authorization") else 401), b"", {}

    with Receiver(answer) as broker:
        relay = serve("notifications", SINK=broker.url, SINK_TOKEN=token, HOLD_SECONDS=1)
        assert post(relay, JSON, records(record("a"))).status == 204
        token.write_text("renewed\n")
        assert post(relay, JSON, records(record("b"))).status == 204
        tokens = [each.headers["authorization"] for each in broker.accepted]
        assert tokens == ["Bearer first", "Bearer renewed"]
        token.unlink()
        assert post(relay, JSON, records(record("c"))).status == 503


def test_the_relay_sends_each_record_of_a_stored_object(relay) -> None:
    relay, sink = relay
    body = records(record("a"), record("b", "ObjectRemoved:Delete"), record("c"))
    assert post(relay, JSON, body).status == 204
    assert sorted(each.headers["ce-subject"] for each in sink.accepted) == ["a", "c"]
    assert post(relay, JSON, records(record("d", "ObjectRemoved:Delete"))).status == 204
    assert len(sink.accepted) == 2


def test_the_relay_refuses_garbage(relay) -> None:
    relay, sink = relay
    response = post(relay, JSON, b"garbage")
    assert response.status == 400
    assert "not an S3 notification" in json.loads(response.data)["detail"]
    assert not sink.requests


def test_the_relay_refuses_only_after_its_hold(relay) -> None:
    relay, sink = relay
    sink.__exit__()
    begin = time.monotonic()
    response = post(relay, JSON, records(record("a")))
    assert 0.99 <= time.monotonic() - begin < 60  # a second, as timers count it
    assert response.status == 503
    assert "the Broker is down" in json.loads(response.data)["detail"]
    sink.__enter__()
    assert post(relay, JSON, records(record("a"))).status == 204


def test_the_relay_drops_what_the_broker_refuses(relay) -> None:
    """For good: RGW would repeat the notification for ever, before all others."""
    relay, sink = relay
    sink.answer = lambda each, times: (
        (400, b"no", {}) if each.headers["ce-subject"] == "b" else (204, b"", {})
    )
    assert post(relay, JSON, records(record("a"), record("b"))).status == 204
    assert '"event": "notification dropped"' in relay.process.tail()
    metrics = relay.http.request("GET", f"{relay.url}/metrics").data.decode()
    assert "stampede_notifications_dropped_total 1.0" in metrics


@pytest.mark.parametrize("status", [401, 404, 500, 503])
def test_no_answer_of_the_broker_makes_the_relay_retry_at_once(relay, status: int) -> None:
    relay, sink = relay
    sink.answer = answering(status)
    begin = time.monotonic()
    assert post(relay, JSON, records(record("a"))).status == 503
    assert 0.99 <= time.monotonic() - begin < 60  # a second, as timers count it
    assert len(sink.requests) <= 10


def test_the_relay_waits_for_a_slow_broker(relay) -> None:
    relay, sink = relay
    sink.delay = 2.5
    assert post(relay, JSON, records(record("a"))).status == 204
    assert len(sink.requests) == 1


def test_all_or_none_of_a_notification(relay) -> None:
    relay, sink = relay
    sink.answer = lambda each, times: (
        (500, b"", {}) if each.headers["ce-subject"] == "b" else (204, b"", {})
    )
    assert post(relay, JSON, records(record("a"), record("b"))).status == 503


def test_a_socket_that_outlives_the_relay_refuses_no_connection(tmp_path: Path) -> None:
    """As in `stampede up`: Ceph never retries an endpoint that refused it once."""
    with Receiver() as sink, socket.create_server(("127.0.0.1", free_port())) as held:
        url = "http://{}:{}".format(*held.getsockname())
        relay = Process(
            "relay",
            [sys.executable, "-m", "stampede", "serve", "notifications"],
            tmp_path / "log",
            {"K_SINK": sink.url, "STAMPEDE_SOCKET": str(held.fileno())},
            [held.fileno()],
        )
        relay.start()
        wait_until(lambda: is_ready(url), relay)
        relay.kill()
        with ThreadPoolExecutor() as pool, urllib3.PoolManager(timeout=120, retries=False) as http:
            post = partial(http.request, "POST", url, headers=JSON)
            response = pool.submit(post, body=records(record("a")))
            time.sleep(1)
            assert not response.done()
            relay.start()
            assert response.result().status == 204
        relay.stop()
        assert relay.status == 0
        assert [each.headers["ce-subject"] for each in sink.accepted] == ["a"]
