"""Each process of `up` gets the keys of the stores that it uses, and no others."""

from pathlib import Path

import pytest
import yaml

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.broker.triggers import Spec, read_triggers
from stampede.handlers.apps import APPS
from stampede_local.environment import of_process, triggers_file

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


OWN = """
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata:
  name: {}
spec:
  broker: stampede
  subscriber:
    {}
"""
BY_URI = "uri: http://127.0.0.1:9000/"
BY_REF = "ref: {apiVersion: v1, kind: Service, name: mine}"


def test_triggers_of_the_user_come_beside_ours(tmp_path: Path) -> None:
    usual = read_triggers(SETTINGS.triggers)
    assert triggers_file(SETTINGS, None, tmp_path) == SETTINGS.triggers
    (tmp_path / "own.yaml").write_text(OWN.format("mine", BY_URI))
    both = read_triggers(triggers_file(SETTINGS, tmp_path / "own.yaml", tmp_path))
    assert both[:-1] == usual
    assert both[-1].spec.subscriber.uri == "http://127.0.0.1:9000/"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (OWN.format("stampede-thumbnails", BY_URI), "another Trigger has the name stampede-thumb"),
        (OWN.format("mine", BY_REF), "Trigger mine: its subscriber has no URL here"),
        (OWN.format("mine", BY_URI) + "---" + OWN.format("mine", BY_URI), "has the name mine"),
        ("nonsense", "own.yaml: Trigger document 1"),
    ],
)
def test_a_trigger_that_would_get_nothing_is_refused(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(SetupError, match=fault):
        triggers_file(SETTINGS, tmp_path / "own.yaml", tmp_path)


def test_a_subscriber_of_the_settings_has_a_url(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN.format("mine", BY_REF))
    settings = SETTINGS.model_copy(update={"subscribers": {"mine": "http://127.0.0.1:9000"}})
    assert len(read_triggers(triggers_file(settings, tmp_path / "own.yaml", tmp_path))) == 4


def test_the_example_for_one_machine_is_the_one_for_a_cluster() -> None:
    folder = Path(__file__).parents[3] / "eventing" / "examples" / "function"
    (here,) = read_triggers(folder / "trigger-here.yaml")
    (there,) = yaml.safe_load((folder / "trigger.yaml").read_text())["triggers"].values()
    there["delivery"].pop("deadLetterSink")
    there["subscriber"] = {"uri": here.spec.subscriber.uri}
    assert here.spec == Spec.model_validate({"broker": "stampede", **there})
