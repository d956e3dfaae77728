"""Tokens and limits: who may ask the read service, and how often."""

import os
import time

import pytest
from typer.testing import CliRunner

from stampede.cli.main import app as cli
from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.read.access import rate_limits
from stampede.read.access.bearer_tokens import line_of, new_token
from stampede.read.access.rate_limits import ClientLimits
from stampede.read.app import make_app
from stampede.read.errors import TooManyRequests
from stampede.store.objects.memory import MemoryObjects
from tests.support.read.read_service import ZTF_ALERT, ZTF_OBJECT, serving

ROUTES = {
    "pages": ("/", f"/objects/{ZTF_OBJECT}", f"/alerts/{ZTF_ALERT}", f"/find?id={ZTF_OBJECT}"),
    "cutouts": (
        f"/v1/alerts/{ZTF_ALERT}",
        f"/v1/alerts/{ZTF_ALERT}/cutouts/science",
        f"/compatible/alerce/get_stamp?oid={ZTF_OBJECT}&candid={ZTF_ALERT}&type=science",
    ),
    "lightcurves": (
        f"/v1/objects/{ZTF_OBJECT}/lightcurve",
        f"/compatible/fink/ztf/api/v1/objects?objectId={ZTF_OBJECT}",
    ),
    "ledger": ("/v1/ledger",),
    "bulk": ("/v1/cutouts", "/v1/lightcurves"),
}
OPEN = ("/health/liveness", "/health/readiness", "/openapi.json", "/help", "/favicon.ico")


def ask(read, path: str, token: str | None = None, scheme: str = "Bearer", **headers):
    if token:
        headers["Authorization"] = f"{scheme} {token}"
    body = b"1" if path in ROUTES["bulk"] else None
    return read(path, "POST" if body else "GET", body, headers=headers, retries=False)


def made(*arguments: str) -> tuple[str, str]:
    """The token and the line that `stampede token new` prints."""
    got = CliRunner().invoke(cli, ["token", "new", *arguments])
    assert got.exit_code == 0, got.output
    token, line = got.stdout.splitlines()
    return token, line


@pytest.fixture
def tokens(tmp_path):
    tokens, lines = {}, ["# tokens of the test", ""]
    for scope in (*ROUTES, "*"):
        tokens[scope], line = made("--name", f"user-{scope}", "--scope", scope)
        assert tokens[scope] not in line
        lines.append(line)
    (tmp_path / "tokens").write_text("\n".join(lines))
    return tokens


@pytest.fixture
def closed(store, tokens, tmp_path):
    yield from serving(make_app(Settings(tokens=tmp_path / "tokens"), store))


def test_a_token_opens_the_routes_of_its_scope(closed, tokens):
    for scope, paths in ROUTES.items():
        for path in paths:
            nobody = ask(closed, path)
            assert nobody.status == 401, path
            assert nobody.headers["www-authenticate"] == 'Bearer realm="stampede"'
            assert nobody.json()["type"] == "urn:stampede:problem:unauthorized"
            assert ask(closed, path, tokens[scope]).status in (200, 302), path
            assert ask(closed, path, tokens["*"]).status in (200, 302), path
            other = ask(closed, path, tokens["ledger" if scope != "ledger" else "bulk"])
            assert other.status == 403
            assert f'scope="{scope}"' in other.headers["www-authenticate"]


def test_a_person_is_told_what_to_do_about_a_closed_page(closed):
    got = closed("/", headers={"Accept": "text/html,*/*;q=0.8"})
    text = got.data.decode()
    assert got.status == 401
    assert got.headers["www-authenticate"] == 'Bearer realm="stampede"'
    assert "Ask those who run it for access" in text
    assert '<a href="/help#programs">' in text
    assert "Authorization" not in text
    assert ask(closed, "/help").status == 200


def test_a_wrong_token_opens_nothing(closed, tokens):
    good = tokens["*"]
    for token in ("x", good[:-1], good + "x", good.upper(), "é", "sha256:" + "0" * 64, "a b"):
        got = ask(closed, "/v1/ledger", token.encode().decode("latin-1"))
        assert got.status == 401, token
        assert 'error="invalid_token"' in got.headers["www-authenticate"]
    assert ask(closed, "/v1/ledger", good, scheme="Basic").status == 401
    assert ask(closed, "/v1/ledger", good, scheme="bearer").status == 200
    assert ask(closed, "/v1/ledger", good, scheme="Token").status == 200  # as Lasair's client


def test_health_and_the_description_stay_open(closed):
    for path in OPEN:
        assert ask(closed, path).status == 200


def test_without_tokens_everything_is_open(read):
    for paths in ROUTES.values():
        for path in paths:
            assert ask(read, path).status in (200, 302)
            assert ask(read, path, "unknown").status in (200, 302)


def test_some_scopes_may_stay_open(store, tokens, tmp_path):
    settings = Settings(tokens=tmp_path / "tokens", open_scopes="pages, cutouts")
    for read in serving(make_app(settings, store)):
        assert ask(read, "/").status == 200
        got = ask(read, f"/v1/alerts/{ZTF_ALERT}")
        assert "public" in got.headers["cache-control"]
        assert ask(read, "/v1/cutouts").status == 401


def test_no_shared_cache_keeps_an_answer_that_needed_a_token(closed, tokens):
    got = ask(closed, f"/v1/alerts/{ZTF_ALERT}", tokens["cutouts"])
    assert got.headers["cache-control"].startswith("private")
    assert "Authorization" in got.headers["vary"]


def test_tokens_change_without_a_restart(closed, tokens, tmp_path, monkeypatch):
    path = tmp_path / "tokens"
    new, line = made("--name", "new", "--scope", "ledger", "--days", "1")
    assert ask(closed, "/v1/ledger", new).status == 401
    fresh = tmp_path / "fresh"
    fresh.write_text(line)
    os.replace(fresh, path)
    time.sleep(1.1)
    assert ask(closed, "/v1/ledger", new).status == 200
    assert ask(closed, "/v1/ledger", tokens["*"]).status == 401
    for broken in ("new ledger oops", "new nothing sha256:" + "0" * 64):
        path.write_text(broken)
        time.sleep(1.1)
        assert ask(closed, "/v1/ledger", new).status == 200  # the last good tokens stay
    path.unlink()
    time.sleep(1.1)
    assert ask(closed, "/v1/ledger", new).status == 200


def test_an_expired_token_opens_nothing(store, tmp_path):
    from datetime import UTC, datetime, timedelta

    token, today = new_token(), datetime.now(UTC).date()
    for days, status in ((-2, 401), (1, 200)):
        line = line_of(token, "old", ["ledger"], today + timedelta(days=days))
        (tmp_path / "tokens").write_text(line)
        for read in serving(make_app(Settings(tokens=tmp_path / "tokens"), store)):
            assert ask(read, "/v1/ledger", token).status == status


BAD_SETTINGS = {
    "no file": {"tokens": "/nowhere/tokens"},
    "a scope that is none": {"open_scopes": "everything"},
    "a rate of no scope": {"limit_clients": True, "client_rates": {"x": 1.0}},
    "a rate of nothing": {"limit_clients": True, "client_rates": {"bulk": 0.0}},
    "no network": {"trusted_proxies": "ingress"},
}


@pytest.mark.parametrize("settings", BAD_SETTINGS.values(), ids=BAD_SETTINGS)
def test_a_setting_that_cannot_work_is_told_at_the_start(settings):
    with pytest.raises(SetupError):
        make_app(Settings(**settings), MemoryObjects())


def test_the_command_refuses_what_could_not_be_read_again():
    for arguments in (["--name", "a b"], ["--name", "#x"], ["--name", "a", "--scope", "none"]):
        got = CliRunner().invoke(cli, ["token", "new", "--scope", "bulk", *arguments])
        assert got.exit_code != 0


def test_a_client_that_asks_too_often_is_told_when_to_ask_again(store):
    settings = Settings(
        limit_clients=True, client_rates={"cutouts": 0.1}, trusted_proxies="127.0.0.0/8"
    )
    path = f"/v1/alerts/{ZTF_ALERT}"
    for read in serving(make_app(settings, store)):
        responses = [ask(read, path, **{"X-Forwarded-For": "192.0.2.1"}) for _ in range(3)]
        assert [got.status for got in responses] == [200, 200, 429]
        assert 5 <= int(responses[2].headers["retry-after"]) <= 10
        assert responses[2].json()["type"] == "urn:stampede:problem:too-many-requests"
        # Another client, another scope, and one that only claims to be another.
        assert ask(read, path, **{"X-Forwarded-For": "192.0.2.2"}).status == 200
        assert ask(read, "/v1/ledger", **{"X-Forwarded-For": "192.0.2.1"}).status == 200
        assert ask(read, path, **{"X-Forwarded-For": "8.8.8.8, 192.0.2.1"}).status == 429
        assert ask(read, "/health/liveness", **{"X-Forwarded-For": "192.0.2.1"}).status == 200


def test_nobody_but_a_trusted_proxy_names_the_client(store):
    settings = Settings(limit_clients=True, client_rates={"ledger": 0.05})
    for read in serving(make_app(settings, store)):
        assert ask(read, "/v1/ledger", **{"X-Forwarded-For": "192.0.2.1"}).status == 200
        assert ask(read, "/v1/ledger", **{"X-Forwarded-For": "192.0.2.2"}).status == 429


def test_addresses_of_one_network_are_one_client(store):
    settings = Settings(
        limit_clients=True, client_rates={"ledger": 0.05}, trusted_proxies="127.0.0.1"
    )
    for read in serving(make_app(settings, store)):
        for address, status in (("2001:db8::1", 200), ("2001:db8::2", 429), ("2001:db9::1", 200)):
            assert ask(read, "/v1/ledger", **{"X-Forwarded-For": address}).status == status


def test_a_token_has_its_own_limit_wherever_it_comes_from(store, tokens, tmp_path):
    settings = Settings(
        tokens=tmp_path / "tokens", limit_clients=True, client_rates={"ledger": 0.05}
    )
    for read in serving(make_app(settings, store)):
        assert ask(read, "/v1/ledger").status == 401
        assert ask(read, "/v1/ledger").status == 429  # also who guesses is limited
        assert ask(read, "/v1/ledger", tokens["*"]).status == 200
        assert ask(read, "/v1/ledger", tokens["*"]).status == 429
        assert ask(read, "/v1/ledger", tokens["ledger"]).status == 200


def test_clients_are_forgotten_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(rate_limits, "CLIENTS", 100)
    limits = ClientLimits({"bulk": 0.05}, clock=lambda: 0.0)
    for client in range(1000):
        limits.count(str(client), "bulk")
    assert len(limits._buckets) == 100
    with pytest.raises(TooManyRequests):
        limits.count("999", "bulk")


def test_the_default_limits_are_generous(store):
    for read in serving(make_app(Settings(limit_clients=True), store)):
        for _ in range(300):
            assert read(f"/v1/alerts/{ZTF_ALERT}").status == 200
