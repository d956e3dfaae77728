"""Functions and the relay as processes that accept tokens of senders only."""

import uuid
from collections.abc import Iterator

import pytest

from stampede.config.settings import Settings
from stampede.events.auth.access import url_with_key
from stampede.store.ceph import bucket_notifications
from stampede.store.open import open_objects
from stampede_local.ceph import LocalCeph
from tests.support.alerts import made_alerts
from tests.support.events.receiver import Receiver
from tests.support.events.token_issuer import TokenIssuer
from tests.support.store.s3_notifications import JSON, record, records
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

KEY = "the-key-of-these-tests"
SUBJECT = "system:serviceaccount:sky:stampede"
SERVED = 60  # seconds; RGW serves a new topic within 30 s


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer() as issuer:
        yield issuer


def closed(issuer: TokenIssuer) -> dict[str, object]:
    """Settings of functions that accept tokens of this issuer only."""
    return {
        "EVENT_KEY": KEY,
        "SENDER_ISSUER": issuer.url,
        "SENDER_AUDIENCE": "stampede",
        "SENDER_SUBJECTS": SUBJECT,
        "SENDER_TOKENS_ONLY": True,
    }


def test_a_forged_event_stores_nothing(serve, issuer: TokenIssuer) -> None:
    served = serve("cutouts", **closed(issuer))
    objects = open_objects(served.settings)
    alert = made_alerts.confluent(made_alerts.rubin_record(1101, 1), 1101)
    forged = [
        {},
        {"authorization": f"Bearer {KEY}"},
        {"ce-accesskey": KEY},
        {"authorization": f"Bearer {issuer.token(sub='system:serviceaccount:evil:stampede')}"},
        {"authorization": f"Bearer {issuer.token(sub=SUBJECT, exp=1)}"},
        {"authorization": f"Bearer {issuer.token(sub=SUBJECT, aud='broker')}"},
    ]
    assert {served.post(42, alert, **headers).status for headers in forged} == {401}
    assert not list(objects.list(""))
    assert served.http.request("GET", f"{served.url}/health/readiness").status == 200
    right = {"authorization": f"Bearer {issuer.token(sub=SUBJECT)}"}
    assert served.post(42, alert, **right).status == 204
    assert list(objects.list("packs/"))
    assert issuer.asked == 1
    assert right["authorization"][7:] not in served.process.log.read_text()


def test_the_relay_gives_no_key_away_where_tokens_are_needed(serve, issuer: TokenIssuer) -> None:
    with Receiver() as broker:
        relay = serve("notifications", SINK=broker.url, HOLD_SECONDS=1, **closed(issuer))
        body = records(record("packs/61000/0a.parquet"))
        for path, status in (("/", 401), ("/wrong", 401), (f"/{KEY}", 204)):
            response = relay.http.request("POST", relay.url + path, body=body, headers=JSON)
            assert response.status == status
        (event,) = broker.accepted
        assert KEY not in repr(event)


def test_ceph_reaches_a_relay_that_needs_tokens(
    serve, issuer: TokenIssuer, ceph: LocalCeph
) -> None:
    """An RGW posts to a URL that holds the key: it has no token."""
    settings = Settings(
        store=f"{ceph.endpoint}/new-{uuid.uuid4().hex[:12]}",
        access_key=ceph.keys.access_key,
        secret_key=ceph.keys.secret_key,
        event_key=KEY,
    )
    with Receiver() as broker:
        relay = serve("notifications", SINK=broker.url, HOLD_SECONDS=1, **closed(issuer))
        url = url_with_key(relay.url, settings)
        bucket_notifications.setup(settings.model_copy(update={"notifications": url}), print)
        open_objects(settings).put("packs/1", b"data")
        eventually(lambda: bool(broker.accepted), SERVED)
        assert broker.accepted[0].headers["ce-subject"] == "packs/1"
