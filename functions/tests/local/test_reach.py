"""`stampede up` says what it cannot reach."""

import socket
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import SetupError, StoreDown
from stampede.runtime.progress import silent
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede_local import reach
from stampede_local.reach import require_kafka, require_writable
from tests.support.events.refusing_kafka import LOGIN, refusing_kafka


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "RESPONSE_SECONDS", 0.5)


def test_a_kafka_that_is_not_there(capfd: pytest.CaptureFixture) -> None:
    with pytest.raises(SetupError) as caught:
        require_kafka(Settings(kafka="127.0.0.1:1"), ["alerts"], silent)
    assert caught.value.message == (
        "Kafka at 127.0.0.1:1: no broker answers there (is it running, and is the address right?)"
    )
    assert not capfd.readouterr().err


def test_a_server_that_is_no_kafka() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        port = silent_server.getsockname()[1]
        with pytest.raises(SetupError, match=f"Kafka at 127.0.0.1:{port}: no broker answers"):
            require_kafka(Settings(kafka=f"127.0.0.1:{port}"), ["alerts"], silent)


def test_a_password_that_kafka_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "RESPONSE_SECONDS", 2.0)
    with refusing_kafka() as where, pytest.raises(SetupError) as caught:
        require_kafka(Settings(kafka=where, kafka_options=LOGIN), ["alerts"], silent)
    assert caught.value.message == (
        f"Kafka at {where}: it refuses the credentials: "
        "check STAMPEDE_KAFKA_KEYS or STAMPEDE_KAFKA_OPTIONS"
    )


def test_an_option_that_kafka_does_not_have() -> None:
    settings = Settings(kafka="127.0.0.1:1", kafka_options={"no.such.option": "1"})
    with pytest.raises(SetupError, match=r"wrong options: .*no\.such\.option"):
        require_kafka(settings, ["alerts"], silent)


def test_a_store_that_can_be_written_stays_as_it_was() -> None:
    objects = MemoryObjects()
    require_writable(objects)
    assert not list(objects.list(""))


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreDown, match="file"):
        require_writable(DirectoryObjects(tmp_path / "file" / "store"))
