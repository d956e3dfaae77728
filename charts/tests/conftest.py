"""Schemas of everything, made once a session."""

from typing import Any

import pytest
from kafkasource import add_kafka_source
from origins import definitions
from schemas import Schemas


@pytest.fixture(scope="session")
def known(pytestconfig: pytest.Config) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Definitions out of Go modules, fetched the first time, with a word for who waits."""
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    return definitions(lambda line: reporter.write_line(line) if reporter else None)


@pytest.fixture(scope="session")
def schemas(known: tuple[dict[str, Any], list[dict[str, Any]]]) -> Schemas:
    """What every kind may say."""
    made = Schemas(*known)
    add_kafka_source(made)
    return made
