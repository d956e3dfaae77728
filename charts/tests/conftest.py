"""Schemas of all kinds, built once per session."""

from typing import Any

import pytest
from kafkasource import add_kafka_source
from origins import definitions
from schemas import Schemas


@pytest.fixture(scope="session")
def known(pytestconfig: pytest.Config) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Definitions from pinned packages. The first run fetches them and reports progress."""
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    return definitions(lambda line: reporter.write_line(line) if reporter else None)


@pytest.fixture(scope="session")
def schemas(known: tuple[dict[str, Any], list[dict[str, Any]]]) -> Schemas:
    """The strict schema of every kind."""
    schemas = Schemas(*known)
    add_kafka_source(schemas)
    return schemas
