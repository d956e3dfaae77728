"""Tokens of senders, signed by a real issuer: a right one is served, others are told 401."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.auth.access import senders
from stampede.events.auth.sender_credentials import SenderProof
from stampede.events.cloudevents.event import Event
from stampede.events.http.endpoint import EventEndpoint, HttpBinding
from stampede.http import jwt_verifier as issuers
from tests.support.events.token_issuer import TokenIssuer
from tests.support.http import Answer, post

pytestmark = pytest.mark.anyio

KEY = "the-key-of-these-tests"
NAMESPACE = "system:serviceaccount:sky"
SUBJECTS = f"{NAMESPACE}:stampede,{NAMESPACE}:stampede-*"
EVENT = {
    "ce-specversion": "1.0",
    "ce-type": "dev.knative.kafka.event",
    "ce-source": "s#alerts",
    "ce-subject": "partition:0#42",
    "ce-id": "partition:0/offset:42",
}
RIGHTFUL = {
    "our source, the toolbox": f"{NAMESPACE}:stampede",
    "a Trigger of the Broker": f"{NAMESPACE}:stampede-thumbnails-oidc-eventing.knative.dev-trigger",
    "a PingSource": f"{NAMESPACE}:stampede-compact-oidc-sources.knative.dev-pingsource",
    "a KafkaSource": f"{NAMESPACE}:stampede-lsst-cutouts-oidc-sources.knative.dev-kafkasource",
}


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer() as issuer:
        yield issuer


class Function:
    """A function that accepts tokens only, and the token of its source."""

    def __init__(self, issuer: TokenIssuer, **settings: Any) -> None:
        self.issuer, self.events = issuer, list[Event]()
        given: dict[str, Any] = {
            "event_key": KEY,
            "sender_issuer": issuer.url,
            "sender_audience": "stampede",
            "sender_subjects": SUBJECTS,
            "sender_tokens_only": True,
        }
        binding = HttpBinding(key_in_path=settings.pop("key_in_path", False))
        self.endpoint = EventEndpoint.of(
            "guarded", self.handle, Settings(**(given | settings)), binding=binding
        )

    async def handle(self, event: Event) -> None:
        self.events.append(event)

    async def post(self, token: str = "", path: str = "/", **headers: str) -> Answer:
        bearer = {"authorization": f"Bearer {token}"} if token else {}
        return await post(self.endpoint, b"x", EVENT | bearer | headers, path)

    def token(self, **claims: Any) -> str:
        return self.issuer.token(**({"sub": f"{NAMESPACE}:stampede"} | claims))


@pytest.mark.parametrize("subject", RIGHTFUL.values(), ids=RIGHTFUL)
async def test_a_rightful_sender_is_served(issuer: TokenIssuer, subject: str) -> None:
    function = Function(issuer)
    token = function.token(sub=subject, aud=["other", "stampede"])
    for _ in range(3):
        assert (await function.post(token)).status == 204
    assert len(function.events) == 3
    assert token not in repr(function.events)


FORGED = {
    "expired": ({"exp": 1}, "expired"),
    "of another audience": ({"aud": "broker"}, "udience"),
    "of another issuer": ({"iss": "https://evil.test"}, "issuer"),
    "without an end": ({"exp": None}, "exp"),
    "of nobody": ({"sub": None}, "sub"),
    "of another namespace": ({"sub": "system:serviceaccount:evil:stampede"}, "evil:stampede is"),
    "of another account": ({"sub": f"{NAMESPACE}:default"}, "sky:default is not one"),
    "of a longer name": ({"sub": f"{NAMESPACE}:stampedes"}, "sky:stampedes is not one"),
}


@pytest.mark.parametrize(("claims", "reason"), FORGED.values(), ids=FORGED)
async def test_a_token_with_wrong_claims_is_told_401(
    issuer: TokenIssuer, claims: dict[str, object], reason: str
) -> None:
    function = Function(issuer)
    for _ in range(2):
        response = await function.post(function.token(**claims))
        assert response.status == 401
        assert reason in response.problem["detail"]
        assert response.problem["type"] == "urn:stampede:problem:not-authorized"
    assert not function.events


async def test_a_stranger_is_told_401(issuer: TokenIssuer) -> None:
    function = Function(issuer)
    good = function.token()
    head, body, signature = good.split(".")
    forged = [
        "",
        KEY,
        "a.b.c",
        "..",
        f"{head}.{body}.",
        f"{head}.{function.token(sub='admin').split('.')[1]}.{signature}",
        function.token(key=rsa.generate_private_key(65537, 2048)),
        function.token(kid="unknown", key=rsa.generate_private_key(65537, 2048)),
        function.token(key="", algorithm="none"),
        good + "A" * 20_000,
    ]
    assert (await function.post(good)).status == 204
    assert {(await function.post(token)).status for token in forged} == {401}
    assert (await function.post(**{"ce-accesskey": KEY})).status == 401
    assert (await function.post(path=f"/{KEY}")).status == 401
    assert len(function.events) == 1


async def test_an_s3_endpoint_has_its_key_in_the_path_though_others_need_tokens(
    issuer: TokenIssuer,
) -> None:
    relay = Function(issuer, key_in_path=True)
    assert (await relay.post(path=f"/{KEY}")).status == 204
    assert (await relay.post(relay.token())).status == 204
    assert (await relay.post(KEY)).status == 401
    assert (await relay.post(path="/")).status == 401


async def test_both_are_accepted_while_an_installation_changes(issuer: TokenIssuer) -> None:
    function = Function(issuer, sender_tokens_only=False)
    assert (await function.post(KEY)).status == 204
    assert (await function.post(**{"ce-accesskey": KEY})).status == 204
    assert (await function.post(function.token())).status == 204
    assert (await function.post("of.another.broker", **{"ce-accesskey": KEY})).status == 204
    assert (await function.post(function.token(exp=1))).status == 401
    assert (await function.post()).status == 401


async def test_a_token_is_verified_once_and_until_it_expires(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = Function(issuer)
    token = function.token(exp=time.time() + 2)
    monkeypatch.setattr("stampede.events.auth.sender_tokens.LEEWAY", 0.0)
    monkeypatch.setattr(issuers, "LEEWAY", 0.0)
    assert (await function.post(token)).status == 204
    monkeypatch.setattr(issuers.Issuer, "claims", lambda *_: pytest.fail("verified again"))
    assert (await function.post(token)).status == 204
    monkeypatch.undo()
    monkeypatch.setattr(issuers, "LEEWAY", 0.0)
    time.sleep(2.1)
    response = await function.post(token)
    assert response.status == 401
    assert "expired" in response.problem["detail"]


async def test_a_new_key_of_the_issuer_is_found_without_a_restart(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = Function(issuer)
    assert (await function.post(function.token())).status == 204
    issuer.keys["two"] = ec.generate_private_key(ec.SECP256R1())
    new = function.token(kid="two", algorithm="ES256")
    for _ in range(5):
        assert (await function.post(new)).status == 401
    assert issuer.asked == 1  # strangers can invent names of keys
    monkeypatch.setattr(issuers, "ASK_SECONDS", 0.0)
    assert (await function.post(new)).status == 204
    assert issuer.asked == 2


async def test_a_sender_tries_again_while_the_issuer_is_down(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = Function(issuer)
    issuer.down = True
    response = await function.post(function.token())
    assert response.status == 503
    assert response.problem["type"] == "urn:stampede:problem:issuer-down"
    assert (await function.post()).status == 401  # a stranger needs no issuer
    monkeypatch.setattr(issuers, "FAILED_SECONDS", 0.0)
    issuer.down = False
    assert (await function.post(function.token())).status == 204


async def test_kubernetes_as_issuer(tmp_path: Path) -> None:
    """It has another name than its URL, its own certificate, and tells its keys to pods only."""
    name, ca, pod = (
        "https://kubernetes.default.svc.cluster.local",
        tmp_path / "ca",
        tmp_path / "pod",
    )
    with TokenIssuer(name, "of-this-pod", ca) as issuer:
        settings = {"sender_issuer_ca": ca, "sender_issuer_token": pod}
        pod.write_text("of-another\n")
        function = Function(issuer, **settings)
        assert (await function.post(function.token())).status == 503
        pod.write_text("of-this-pod\n")
        function = Function(issuer, **settings)
        assert (await function.post(function.token())).status == 204
        assert (await function.post(function.token(iss=issuer.url))).status == 401
        untrusted = Function(issuer, sender_issuer_token=pod)
        assert (await untrusted.post(function.token())).status == 503


@pytest.mark.parametrize(
    "wrong",
    [
        {"sender_audience": ""},
        {"sender_subjects": " , "},
        {"sender_issuer": ""},
        {"sender_issuer_ca": "/nowhere"},
    ],
)
def test_settings_that_cannot_work(wrong: dict[str, object]) -> None:
    right: dict[str, Any] = {"sender_issuer": "https://a.test", "sender_audience": "a"}
    right |= {"sender_subjects": "b"}
    assert senders(Settings(**right))
    with pytest.raises(SetupError):
        senders(Settings(**(right | {"sender_tokens_only": True} | wrong)))


def test_a_sender_reads_its_token_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    proof = SenderProof(Settings(event_key=KEY, sender_token=token))
    assert proof.headers() == {"authorization": f"Bearer {KEY}"}  # it is not mounted yet
    monkeypatch.setattr("stampede.events.auth.sender_credentials.READ_SECONDS", 0.0)
    for text in ("first", "second"):
        token.write_text(f"{text}\n")
        assert proof.headers() == {"authorization": f"Bearer {text}", "ce-accesskey": KEY}
    assert SenderProof(Settings(sender_token=token)).headers() == {"authorization": "Bearer second"}
    assert SenderProof(Settings()).headers() == {}
