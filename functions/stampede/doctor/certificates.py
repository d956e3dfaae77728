"""TLS: are the certificates of stores, Kafka and schema registry trusted, and for how long?"""

import ssl
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from stampede.config.settings import Settings
from stampede.doctor.finding import Finding, Installation, NotExamined, error, warning
from stampede.handlers.reconcile.certificates import Endpoint, expiry, of_stores

SOON_DAYS = 21.0


def certificates(installation: Installation) -> Iterator[Finding]:
    """The certificates of stores, Kafka and registry are trusted, and not about to expire."""
    settings = installation.settings
    endpoints = [*of_stores(settings), *_of_kafka(settings), *_of_registry(settings)]
    if not endpoints:
        raise NotExamined("neither stores nor Kafka nor a registry are reached by TLS")
    for endpoint in endpoints:
        where = f"{endpoint.host}:{endpoint.port}"
        try:
            days = (expiry(endpoint) - time.time()) / 86400
        except ssl.SSLCertVerificationError as failure:
            yield error(
                f"the certificate of {where} is refused: {failure.verify_message}",
                f"renew it, or set {endpoint.setting} to the file of its authority",
            )
        except FileNotFoundError:
            yield error(f"there is no file {endpoint.authority}", f"correct {endpoint.setting}")
        except OSError:
            continue  # the other checks say that it does not answer
        else:
            if days < SOON_DAYS:
                yield warning(f"the certificate of {where} expires in {days:.0f} days", "renew it")


def _of_registry(settings: Settings) -> Iterator[Endpoint]:
    where = urlsplit(settings.schema_registry or "")
    if where.scheme == "https" and where.hostname:
        file, setting = settings.schema_registry_ca, "STAMPEDE_SCHEMA_REGISTRY_CA"
        authority = str(file) if file else None
        yield Endpoint("schema registry", where.hostname, where.port or 443, authority, setting)


def _of_kafka(settings: Settings) -> Iterator[Endpoint]:
    options = settings.kafka_options
    if "SSL" not in str(options.get("security.protocol", "")).upper():
        return
    authority = options.get("ssl.ca.location")
    for address in settings.kafka.split(","):
        host, _, port = address.strip().rpartition(":")
        yield Endpoint(
            "Kafka",
            host,
            int(port),
            str(authority) if authority else None,
            "ssl.ca.location in STAMPEDE_KAFKA_OPTIONS",
        )
