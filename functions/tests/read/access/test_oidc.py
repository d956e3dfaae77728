"""Tokens of an OpenID Connect provider, here a real HTTP server with real keys."""

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.http import jwt_verifier
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from tests.support.events.token_issuer import TokenIssuer
from tests.support.read.read_service import ZTF_ALERT, serving


@pytest.fixture
def provider():
    with TokenIssuer() as provider:
        yield provider


@pytest.fixture
def read(provider, store):
    settings = Settings(oidc_issuer=provider.issuer, oidc_audience="stampede")
    yield from serving(make_app(settings, store))


def status(read, token: str, path: str = f"/v1/alerts/{ZTF_ALERT}") -> int:
    return read(path, headers={"Authorization": f"Bearer {token}"}, retries=False).status


def test_a_token_of_the_provider_opens_the_routes_of_its_scopes(provider, read):
    assert read(f"/v1/alerts/{ZTF_ALERT}").status == 401
    assert status(read, provider.token()) == 200
    assert status(read, provider.token(), "/v1/ledger") == 403
    for scope in ("stampede:*", "stampede:ledger x"):
        assert status(read, provider.token(scope=scope), "/v1/ledger") == 200
    assert status(read, provider.token(scope=None, scp=["stampede:cutouts"])) == 200
    assert read("/health/liveness").status == 200
    assert provider.asked == 1


WRONG = {
    "another audience": {"aud": "other"},
    "no audience": {"aud": None},
    "another issuer": {"iss": "https://evil.test"},
    "expired": {"exp": 1},
    "without an end": {"exp": None},
    "not yet": {"nbf": 1e11},
    "nobody's": {"sub": None},
}


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG)
def test_a_token_with_wrong_claims_opens_nothing(provider, read, claims):
    assert status(read, provider.token(**claims)) == 401


def test_a_token_without_scopes_opens_nothing(provider, read):
    for scope in ("", "cutouts", "stampede:", "STAMPEDE:cutouts", 5, {"stampede:*": 1}):
        assert status(read, provider.token(scope=scope)) == 403


def test_a_forged_token_opens_nothing(provider, read):
    good = provider.token()
    public = jwt.PyJWK(provider.document("/keys")["keys"][1]).key
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body, signature = good.split(".")
    forged = [
        provider.token(key=rsa.generate_private_key(65537, 2048)),
        provider.token(key="", algorithm="none"),
        hmac_signed(provider, pem),
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-8]}AAAAAAAA",
        f"{head}.{provider.token(scope='stampede:*').split('.')[1]}.{signature}",
        "a.b.c",
        "..",
        "é.é.é".encode().decode("latin-1"),
        good + "A" * 20_000,
    ]
    assert {status(read, token) for token in forged} == {401}
    assert status(read, good) == 200


def hmac_signed(provider, secret: bytes) -> str:
    """A token whose secret is the public key: jwt.encode refuses to make it."""
    import hashlib
    import hmac

    head, body, _ = provider.token().split(".")
    head = jwt.utils.base64url_encode(b'{"alg":"HS256","typ":"JWT","kid":"one"}').decode()
    signature = hmac.digest(secret, f"{head}.{body}".encode(), hashlib.sha256)
    return f"{head}.{body}.{jwt.utils.base64url_encode(signature).decode()}"


def test_keys_change_without_a_restart_and_strangers_make_no_requests(provider, read, monkeypatch):
    assert status(read, provider.token()) == 200
    provider.keys["two"] = ec.generate_private_key(ec.SECP256R1())
    new = provider.token("two", algorithm="ES256")
    for number in range(20):
        stranger = provider.token(f"invented-{number}", key=provider.keys["one"])
        assert status(read, stranger) == 401
    assert provider.asked == 1
    monkeypatch.setattr(jwt_verifier, "ASK_SECONDS", 0.0)
    assert status(read, new) == 200
    del provider.keys["one"]
    monkeypatch.setattr(jwt_verifier, "KEEP_SECONDS", 0.0)
    assert status(read, new) == 200
    with_old = jwt.encode({}, rsa.generate_private_key(65537, 2048), "RS256", {"kid": "one"})
    assert status(read, with_old) == 401


def test_a_provider_that_is_down(provider, read, monkeypatch):
    monkeypatch.setattr(jwt_verifier, "FAILED_SECONDS", 0.0)
    provider.down = True
    assert status(read, provider.token()) == 503
    provider.down = False
    assert status(read, provider.token()) == 200
    provider.down = True
    monkeypatch.setattr(jwt_verifier, "KEEP_SECONDS", 0.0)
    assert status(read, provider.token()) == 200  # by the keys of before


def test_a_provider_without_scopes(provider, store):
    settings = Settings(
        oidc_issuer=provider.issuer, oidc_audience="stampede", oidc_scopes="cutouts, bulk"
    )
    for read in serving(make_app(settings, store)):
        assert status(read, provider.token(scope=None)) == 200
        assert status(read, provider.token(scope=None), "/v1/ledger") == 403


@pytest.mark.parametrize("settings", [{}, {"oidc_audience": "a", "oidc_scopes": "all"}])
def test_settings_that_cannot_work(settings):
    with pytest.raises(SetupError):
        make_app(Settings(oidc_issuer="https://a.test", **settings), MemoryObjects())
