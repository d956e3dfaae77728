"""Each process of `up` gets the keys of the stores that it uses, and no others."""

import pytest

from stampede.config.settings import Settings
from stampede.handlers.apps import APPS
from stampede_local.environment import of_process

SETTINGS = Settings(
    store="http://127.0.0.1:1/sky",
    access_key="first-key",
    secret_key="first-secret",
    replica="http://127.0.0.1:2/sky",
    replica_access_key="second-key",
    replica_secret_key="second-secret",
    event_key="the key of events",
)


@pytest.mark.parametrize("function", [*APPS, "source"])
def test_a_process_gets_the_keys_that_it_needs(function: str, monkeypatch) -> None:
    for name in ("STAMPEDE_SECRET_KEY", "AWS_SECRET_ACCESS_KEY", "STAMPEDE_REPLICA_SECRET_KEY"):
        monkeypatch.setenv(name, "of the shell")
    for name, value in of_process(function, SETTINGS).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    first = function not in ("source", "broker", "notifications")
    second = function in ("replicate", "reconcile", "scrub")
    keys = (settings.access_key, settings.secret_key.get_secret_value())
    assert keys == (("first-key", "first-secret") if first else ("", ""))
    keys = (settings.replica_access_key, settings.replica_secret_key.get_secret_value())
    assert keys == (("second-key", "second-secret") if second else ("", ""))
    assert bool(settings.replica) == second
    event_key = settings.event_key.get_secret_value()
    assert event_key == ("" if function == "read" else "the key of events")
