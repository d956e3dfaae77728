"""A Kafka that accepts connections and is silent: commands say what they wait for, then give up."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.kafka.topics import KafkaTopics
from stampede.runtime import progress
from stampede.telemetry.logs import configure_command_logs

BUSY = 3.0
"""Times that a command takes longer on a busy machine; most of its time is its own patience."""


@pytest.fixture
def frozen() -> Iterator[str]:
    """HOST:PORT of a server that says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_wait_is_told_while_it_lasts(
    frozen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(progress, "SLOW_SECONDS", 0.1)
    configure_command_logs()
    told = f"stampede: warning: Kafka at {frozen} does not answer yet: waiting, 1 s at most\n"
    with KafkaTopics(Settings(kafka=frozen), 1.0) as topics:
        with pytest.raises(SetupError, match="does not answer"):
            topics.names()
        assert capsys.readouterr().err == told
        with pytest.raises(SetupError, match="does not answer"):
            topics.watermarks(["alerts"])
    assert capsys.readouterr().err == told


@pytest.mark.integration
@pytest.mark.parametrize(
    "words", [["audit", "alerts"], ["doctor"], ["simulate", "--alerts", "1", "--to", "kafka://{}"]]
)
def test_a_command_says_so_within_seconds_and_ends(
    words: list[str], frozen: str, tmp_path: Path
) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("STAMPEDE_", "K_"))}
    clean |= {"XDG_DATA_HOME": str(tmp_path), "STAMPEDE_STORE": f"file://{tmp_path}/store"}
    clean |= {"STAMPEDE_KAFKA": frozen, "STAMPEDE_TOPICS": "alerts"}
    command = [sys.executable, "-m", "stampede", *(word.format(frozen) for word in words)]
    begin = time.monotonic()
    done = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean)
    assert done.stderr
    first = done.stderr.readline()
    assert re.search(rf"Kafka at {frozen} does not answer yet: waiting", first)
    assert time.monotonic() - begin < 3.5 * BUSY
    done.stderr.read()
    assert done.wait() == 2
    assert time.monotonic() - begin < 15 * BUSY
