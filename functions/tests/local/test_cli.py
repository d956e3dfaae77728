"""Options of `stampede up` that contradict each other."""

import pytest
from typer.testing import CliRunner, Result

from stampede.cli.main import add_installed_commands, app
from stampede.errors import SetupError


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stampede_local.up.up", lambda *_: pytest.fail("it would start"))


def up(*options: str) -> Result:
    if "up" not in {command.name for command in app.registered_commands}:
        add_installed_commands()
    return CliRunner().invoke(app, ["up", *options], env={"COLUMNS": "100"})


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--ceph-port", "1", "--store", "file:///s"], "--ceph-port is of a local Ceph"),
        (["--kafka-port", "1", "--kafka", "k:9092"], "--kafka-port is of a local Kafka"),
        (["--kafka-port", "1", "--topics", ""], "--kafka-port is of a local Kafka"),
        (["--triggers", "t", "--store", "file:///s"], "--triggers needs the local Ceph"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(options: list[str], fault: str) -> None:
    failed = up(*options).exception
    assert isinstance(failed, SetupError)
    assert fault in failed.message


def test_help_names_the_usual_ports() -> None:
    printed = " ".join(up("--help").stdout.split())
    assert "that of the last start, or 8400, or a free one if that is taken" in printed
    assert "that of the last start, or 9092, or a free one if that is taken" in printed
