"""Until when the certificates of the stores are valid."""

import socket
import ssl
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from stampede.config.settings import Settings
from stampede.telemetry import reconcile_metrics

SECONDS = 5.0


class Endpoint(NamedTuple):
    """Where TLS is spoken, and the setting of the file with its authority."""

    name: str
    host: str
    port: int
    authority: str | None
    setting: str


def of_stores(settings: Settings) -> Iterator[Endpoint]:
    """The stores that are reached by TLS; their names are the sites in metrics."""
    for name, url, file, setting in (
        ("store", settings.store, settings.ca_file, "STAMPEDE_CA_FILE"),
        ("second site", settings.replica, settings.replica_ca_file, "STAMPEDE_REPLICA_CA_FILE"),
    ):
        where = urlsplit(url)
        if where.scheme == "https" and where.hostname:
            authority = str(file) if file else None
            yield Endpoint(name, where.hostname, where.port or 443, authority, setting)


def expiry(endpoint: Endpoint) -> float:
    """When its certificate expires, in seconds since 1970.

    Raises
    ------
    ssl.SSLCertVerificationError
        The certificate is not trusted, or has expired.
    OSError
        The endpoint does not answer, or there is no file of its authority.
    """
    context = ssl.create_default_context(cafile=endpoint.authority)
    with (
        socket.create_connection((endpoint.host, endpoint.port), SECONDS) as connection,
        context.wrap_socket(connection, server_hostname=endpoint.host) as tls,
    ):
        peer = tls.getpeercert() or {}
    return ssl.cert_time_to_seconds(str(peer["notAfter"]))


def measure(settings: Settings) -> None:
    """Set the metric of each store. One that does not answer keeps its last value."""
    for endpoint in of_stores(settings):
        try:
            expires = expiry(endpoint)
        except OSError:
            continue  # requests to this store fail too, and other alert rules tell
        reconcile_metrics.CERTIFICATE_EXPIRES.labels(endpoint.name).set(expires)
