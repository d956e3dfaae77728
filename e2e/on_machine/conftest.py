"""All tests here start whole systems, so they are integration tests."""

from pathlib import Path

import pytest

from tests.support import surroundings, tested_with

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    tested_with.register(config)
    surroundings.register(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("integration")
