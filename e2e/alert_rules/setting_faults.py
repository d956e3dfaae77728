"""Faults of settings: one more process has a wrong one, and then a right one."""

import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from e2e.alert_rules.traffic import repeatedly
from e2e.alert_rules.watched import SEED, TOPIC, Watched
from e2e.faults.proxy import Proxy
from e2e.faults.up import with_ports
from stampede.store import store_checks
from stampede.store.open import open_objects
from stampede.store.step_times import StepTimes
from stampede.store.store_checks import ENOUGH, StoreCheck, StoreChecks
from stampede_local import environment
from stampede_local.ports import free_port
from stampede_local.up import send

SLOW_REQUESTS = 10_000  # more than come


@contextmanager
def wrong_dead_letter_sink(watched: Watched) -> Iterator[None]:
    """A source's URL for dead letters is wrong, and its topic has messages that are no alerts."""
    env = environment.of_input(watched.settings, watched.urls, "cutouts", "cutouts")
    env |= {"K_SINK": watched.urls["cutouts"], "STAMPEDE_TOPICS": TOPIC, "STAMPEDE_GROUP": "other"}
    wrong = {"STAMPEDE_DEAD_LETTER_SINK": f"{watched.urls['read']}/wrong"}
    with watched.serving("source-other", **env | wrong):
        yield
    watched.keep(watched.serving("source-other", **env))


@contextmanager
def wrong_key(watched: Watched) -> Iterator[None]:
    """A timer has the key of another installation; then it is no more."""
    key = {"authorization": "Bearer key-of-another-installation"}
    with repeatedly(lambda: send("scrub", watched.urls["scrub"], key), 0.5):
        yield


@contextmanager
def few_keys(watched: Watched) -> Iterator[None]:
    """A pass of `reconcile` looks at one folder of a night; then at many."""
    steps = {"STAMPEDE_RECONCILE": "packs"}
    with watched.serving("nights", **steps, STAMPEDE_RECONCILE_KEYS="1"):
        yield
    watched.keep(watched.serving("nights", **steps))


@contextmanager
def old_certificate(watched: Watched) -> Iterator[None]:
    """The store's certificate expires within days; then it has another, by another authority."""
    pairs = {days: certificate(watched.directory, days) for days in (5, 90)}
    authorities = watched.directory / "authorities.crt"
    authorities.write_text("".join(file.read_text() for file, _ in pairs.values()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*pairs[5])
    port = free_port()
    watched.keep(Proxy(port, watched.ports["ceph"], SEED, context))
    settings = with_ports(watched.settings, {watched.proxies[0].port: port})
    store = settings.store.replace("http:", "https:")
    settings = settings.model_copy(update={"store": store, "replica": ""})
    env = {"STAMPEDE_RECONCILE": "checkpoints", "STAMPEDE_CA_FILE": str(authorities)}
    watched.keep(watched.serving("tls", settings, **env))
    yield
    context.load_cert_chain(*pairs[90])


def certificate(directory: Path, days: int) -> tuple[Path, Path]:
    """Files of a certificate that is valid for so many days, its own authority, and of its key."""
    file, key = directory / f"{days}.crt", directory / f"{days}.key"
    command: list[str | Path] = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(days)),
        *("-subj", f"/CN={days}", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", key, "-out", file),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return file, key


@contextmanager
def no_catalogue(watched: Watched) -> Iterator[None]:
    """The catalogue's folder cannot be written to; then it can."""
    folder = watched.directory / "catalogue"
    folder.write_text("in the way")
    watched.keep(watched.serving("publish", STAMPEDE_CATALOGUE=folder.as_uri()))
    yield
    folder.unlink()


@contextmanager
def slow_requests(watched: Watched) -> Iterator[None]:
    """A store answers late that answered at once all day; then it does again."""
    home, fast = open_objects(watched.settings), {"read": StepTimes(50, 0.001, 0.002)}
    *day, last = [
        StoreCheck(home.now() - timedelta(hours=hours), fast) for hours in range(ENOUGH + 1, 0, -1)
    ]
    store_checks.add(home, "store", StoreChecks(tuple(day)), last)
    proxy = Proxy(free_port(), watched.ports["ceph"], SEED, slow=(0.08, 0.1))
    watched.keep(proxy)
    settings = with_ports(watched.settings, {watched.proxies[0].port: proxy.port})
    settings = settings.model_copy(update={"replica": ""})
    steps = {"STAMPEDE_RECONCILE": "store-check", "STAMPEDE_STORE_CHECK_SECONDS": "1"}
    watched.keep(watched.serving("checked", settings, **steps))
    proxy.inject("slow", SLOW_REQUESTS)
    yield
    proxy.be_kind()
