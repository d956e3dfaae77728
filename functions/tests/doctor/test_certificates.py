"""doctor: certificates of a TLS server that expire soon, are refused, or are well."""

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from stampede.config.settings import Settings
from stampede.doctor.certificates import certificates
from stampede.doctor.finding import Finding, Installation
from stampede.errors import StoreDown
from stampede.handlers.reconcile.reconciler import Reconciler

EXPIRES = "stampede_certificate_expires_timestamp_seconds"
Server = Callable[[int], tuple[int, Path]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Starts a TLS server with a certificate of so many days; its port and the certificate."""
    listeners = []

    def start(days: int) -> tuple[int, Path]:
        certificate, key = tmp_path / f"{days}.crt", tmp_path / f"{days}.key"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(days)),
                *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", key, "-out", certificate),
            ],
            check=True,
            capture_output=True,
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=answer, args=(listener, context), daemon=True).start()
        return listener.getsockname()[1], certificate

    yield start
    for listener in listeners:
        listener.close()


def answer(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Greet each client, until the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            connection.close()  # the client refused the certificate


def store(port: int, authority: Path | None) -> list[Finding]:
    settings = Settings(store=f"https://127.0.0.1:{port}/alerts", ca_file=authority)
    return [*certificates(Installation(settings, {}))]


def test_a_certificate_that_expires_soon_is_a_warning(server: Server) -> None:
    port, certificate = server(5)
    [finding] = store(port, certificate)
    assert finding.level == "warning"
    assert finding.fault == f"the certificate of 127.0.0.1:{port} expires in 5 days"


def test_a_certificate_of_months_is_well(server: Server) -> None:
    assert store(*server(90)) == []


def test_reconcile_exports_when_the_certificate_expires(server: Server) -> None:
    port, certificate = server(5)
    settings = Settings(store=f"https://127.0.0.1:{port}/alerts", ca_file=certificate)
    with pytest.raises(StoreDown):  # this server speaks TLS, but is no store
        Reconciler(settings).run()
    value = REGISTRY.get_sample_value(EXPIRES, {"site": "store"})
    assert value == pytest.approx(time.time() + 5 * 86400, abs=60)


def test_a_certificate_of_an_unknown_authority_is_an_error(server: Server) -> None:
    port, _ = server(90)
    [finding] = store(port, None)
    assert finding.level == "error"
    assert "is refused: self" in finding.fault
    assert "STAMPEDE_CA_FILE" in finding.repair


def test_kafka_s_certificate_is_examined_too(server: Server) -> None:
    port, certificate = server(5)
    options = {"security.protocol": "SSL", "ssl.ca.location": str(certificate)}
    settings = Settings(kafka=f"127.0.0.1:{port}", kafka_options=options)
    [finding] = certificates(Installation(settings, {}))
    assert "expires in 5 days" in finding.fault
