"""No password is in a log, an answer, a report or an error.

Each setting that may hold a secret has one of its own here, found from the settings' own fields,
and nothing that a process says of its failures has any of them.
"""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3
import uvicorn
from pydantic import SecretStr
from starlette.types import ASGIApp
from typer.testing import CliRunner

from stampede.cli.doctor import as_dict, print_result
from stampede.cli.main import app, wrong_settings
from stampede.cli.settings import script, variable_of
from stampede.config.settings import Settings
from stampede.doctor import completeness, kafka, processes
from stampede.doctor.checks import examine
from stampede.doctor.finding import Installation
from stampede.errors import StampedeError
from stampede.events.kafka import source
from stampede.events.kafka.schema_registry import SchemaRegistry
from stampede.handlers.apps import APPS, make_app
from stampede.handlers.reconcile.resend import Resender
from stampede.lookup import ledger_cache
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.open import first_site, open_objects
from stampede.telemetry.logs import configure_logs, get_logger
from stampede_local.ports import free_port
from tests.support.served import event_headers

MARK = re.compile(r"marker-[\w-]+")
NAMED = re.compile(r"key|secret|token|password|login")
"""A setting so named holds a secret, or names where one is."""
PUBLIC = {
    *("access_key", "replica_access_key", "sender_tokens_only", "tokens", "proof_key"),
    "reconcile_keys",
}
"""Names and numbers of keys, digests of tokens, and a file that is read where proofs are signed."""
PAGES = ["/", "/ledger", "/nights", "/v1/ledger", "/v1/alerts/1", "/v1/objects/1/lightcurve"]
COMMANDS = ["status", "check-store", "setup", "deadletters list", "settings", "doctor"]

HTTP = urllib3.PoolManager(retries=False, timeout=60)


def marker(name: str) -> str:
    return f"marker-{name.replace('_', '-')}-0123456789"


def url_of(name: str, port: int, scheme: str = "http://") -> str:
    return f"{scheme}night:{marker(name)}@127.0.0.1:{port}/sky-{name.replace('_', '-')}"


def marked(name: str, folder: Path, port: int, scheme: str = "http://") -> Any:
    """A value with a marker for a setting that may hold a secret or a URL; None for any other."""
    field = Settings.model_fields[name]
    text, mark = field.description or "", marker(name)
    if field.annotation is SecretStr:
        return SecretStr(mark)
    if name == "kafka_options":
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "night", "sasl.password": mark}
        return {"security.protocol": "SASL_PLAINTEXT", **login, "ssl.key.password": mark}
    if text.startswith(("directory with the files", "directory like")):
        (folder / name).mkdir(parents=True)
        for each in ("secret-key", "password"):
            (folder / name / each).write_text(mark)
        for each, public in (("access-key", "night"), ("user", "night"), ("type", "PLAIN")):
            (folder / name / each).write_text(public)
        return str(folder / name)
    if "file with a token" in text or "file with the token" in text:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(mark)
        return folder / name
    if keys := re.findall(r'"([a-z-]+)": URL', text):
        return dict.fromkeys(keys, url_of(name, port, scheme))
    if "URL" in text or "http(s)://" in text or "store like" in text or name == "sink":
        return url_of(name, port, scheme)
    return None


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings full of secrets, and nothing that answers at their addresses."""
    for module in (kafka, completeness, ledger_cache):
        monkeypatch.setattr(module, "PATIENCE", 0.2)
    monkeypatch.setattr(processes, "START_SECONDS", 0)
    port = free_port()
    given = {name: marked(name, tmp_path / "files", port) for name in Settings.model_fields}
    given = {name: value for name, value in given.items() if value is not None}
    configure_logs()
    names: dict[str, Any] = {
        "sender_audience": "sky",
        "sender_subjects": "night",
        "oidc_audience": "sky",
    }
    scopes: dict[str, Any] = {"open_scopes": "pages,cutouts,lightcurves,bulk,ledger"}
    kafka_of: dict[str, Any] = {"kafka": f"127.0.0.1:{port}", "topics": "sky"}
    return Settings(spool=tmp_path, **kafka_of, **names, **scopes, **given)


@pytest.fixture
def reachable(settings: Settings) -> Settings:
    """The same with addresses of stores that Stampede accepts."""
    stores = {
        name: re.sub("night:[^@]*@", "", getattr(settings, name))
        for name in ("store", "replica", "catalogue")
    }
    return settings.model_copy(update=stores)


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """What a test adds, and all that it wrote, has no marker."""
    texts: list[str] = []
    yield texts
    written = capfd.readouterr()
    for text in (*texts, written.out, written.err):
        found = MARK.search(text)
        assert not found, text[max(0, found.start() - 300) : found.end() + 100]


def test_each_setting_that_may_hold_a_secret_has_one_here(tmp_path: Path) -> None:
    unmarked = {
        name
        for name in Settings.model_fields
        if NAMED.search(name) and marked(name, tmp_path, 1) is None
    }
    assert unmarked == PUBLIC
    assert MARK.search(str(marked("schema_registry", tmp_path, 1)))


def test_settings_are_shown_without_secrets(settings: Settings, said: list[str]) -> None:
    said += [repr(settings), str(settings), repr(settings.of_second_site()), f"{settings!r}"]
    said += [*script(settings), repr(first_site(settings))]
    full = "\n".join(script(settings, secrets=True))
    assert marker("schema_registry") in full
    assert marker("kafka_options") in full
    assert "127.0.0.1" in repr(settings)


def test_wrong_settings(settings: Settings, tmp_path: Path, said: list[str]) -> None:
    for name in Settings.model_fields:
        wrong = marked(name, tmp_path / name, 1, scheme="")
        for value in (wrong, [wrong], {"sasl.password": {"a": marker(name)}}):
            try:
                Settings.model_validate({name: value})
            except ValueError as error:
                said += [str(error), repr(error), wrong_settings(error)]
    refused = 0
    for name in ("store", "replica", "catalogue", "schema_registry", "sink", "dead_letter_sink"):
        changed = settings.model_copy(update={name: url_of(name, 1, scheme="")})
        for attempt in (
            lambda s: open_objects(s),
            lambda s: open_objects(s.of_second_site()),
            lambda s: source.check(s),
            lambda s: SchemaRegistry(s).check(),
            lambda s: make_app("notifications", s),
        ):
            try:
                attempt(changed)
            except StampedeError as error:
                said += [str(error), repr(error)]
                refused += 1
    assert refused > 8


def test_doctor(settings: Settings, reachable: Settings, said: list[str]) -> None:
    findings = 0
    for each, installed in ((settings, True), (reachable, True), (reachable, False)):
        for result in examine(Installation(each, each.functions, installed)):
            print_result(result)
            said += [repr(result), json.dumps(as_dict(result))]
            findings += len(result.findings)
    assert findings > 5


@pytest.mark.parametrize("name", [name for name in APPS if name not in ("alerts", "cutouts")])
def test_answers_of_functions(
    reachable: Settings, name: str, said: list[str], tmp_path: Path
) -> None:
    whole = reachable.model_copy(update={"store": f"file://{tmp_path}/store"})
    for settings in (reachable, whole) if name == "read" else (reachable,):
        with running(make_app(name, settings)) as url:
            answers = [*gets(url, name), *(posts(url) if name != "read" else ())]
        said += [answer.data.decode() + str(answer.headers) for answer in answers]
    if name == "read":
        assert 200 in {answer.status for answer in answers}


def gets(url: str, name: str) -> Iterator[urllib3.BaseHTTPResponse]:
    for each in PAGES if name == "read" else ["/metrics", "/health/readiness"]:
        yield HTTP.request("GET", url + each)


def posts(url: str) -> Iterator[urllib3.BaseHTTPResponse]:
    """Answers to an event, with and without the key, as a header and in the path."""
    key = marker("event_key")
    for given in ({}, {"authorization": f"Bearer {key}"}):
        for path in ("/", f"/{key}"):
            yield HTTP.request("POST", url + path, body=b"Obj", headers=event_headers(0) | given)


@contextmanager
def running(made: ASGIApp) -> Iterator[str]:
    """The URL of an app while it runs."""
    server = uvicorn.Server(uvicorn.Config(made, port=0, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(
    reachable: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    said: list[str],
    command: str,
) -> None:
    for name in reachable.model_fields_set:
        value = getattr(reachable, name)
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        monkeypatch.setenv(variable_of(name), text)
    done = CliRunner().invoke(app, [*command.split(), "--data", str(tmp_path / "none")])
    said += [done.output, str(done.exception), repr(done.exception)]
    assert done.exit_code or command == "settings"


def test_a_broker_that_does_not_answer(reachable: Settings, said: list[str]) -> None:
    info = ObjectInfo("packs/a", 1, "etag", None)  # type: ignore[arg-type]
    with pytest.raises(StampedeError) as caught:
        Resender(reachable).send(info)
    said.append(str(caught.value))


def test_a_line_of_the_log(said: list[str], settings: Settings) -> None:
    log = get_logger()
    log.warning("sink is down", url=settings.sink)
    try:
        raise ValueError(f"no route to {settings.sink}")
    except ValueError:
        log.error("failed", exc_info=True)
