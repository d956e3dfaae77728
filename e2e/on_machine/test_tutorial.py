"""Run every command of the tutorial, unchanged but for the port, in a reader's order.

The README begins with some of them, and with four lines of Python, which run here too.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from e2e.commands import command_line, environment
from stampede_local.ports import free_port

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "first-light.md").read_text()
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
# The README's commands between these headings are the tutorial's, in the same order.
FIRST_SECTIONS = ("Python alone, in 60 seconds", "Two commands")
pytestmark = pytest.mark.timeout(900)


class Reader:
    """A reader with two terminals in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, str(free_port())
        self.stampede = " ".join(command_line("x")[:-1])
        self.env = environment() | {"XDG_DATA_HOME": str(folder / "share"), "COLUMNS": "120"}

    def shell(self, command: str) -> list[str]:
        typed = command.replace("8080", self.port)
        if "stampede up" in typed:
            typed += f" --port {self.port}"
        return ["bash", "-c", re.sub(r"^stampede\b", f"exec {self.stampede}", typed)]

    def run(self, command: str) -> str:
        done = subprocess.run(
            self.shell(command),
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


def words(text: str) -> list[list[str]]:
    """The words of each line; the digest of the alerts is that of any version of the simulator."""
    return [line.split() for line in re.sub(r"files-\w+", "files-", text).splitlines()]


def test_tutorial(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    printed: dict[str, str] = {}
    (up_command,) = [command for command in COMMANDS if command.startswith("stampede up")]
    before = COMMANDS[: COMMANDS.index(up_command)]
    for command in before:
        reader.run(command)
    log = tmp_path / "up.log"
    with log.open("wb") as file:
        up = subprocess.Popen(
            reader.shell(up_command), cwd=tmp_path, env=reader.env, stdout=file, stderr=file
        )
    try:
        deadline = time.monotonic() + 300
        while f"ready: http://127.0.0.1:{reader.port}/" not in log.read_text():
            assert up.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        for command in COMMANDS[len(before) + 1 :]:
            printed[command] = reader.run(command)
        (address,) = re.findall(r"<(http://127.0.0.1:8080/objects/\w+)>", PAGE)
        assert "<svg" in reader.run(f"curl --fail --silent {address}")
        assert f"<{address}>" in README
        assert "nJy" in run_python_of_the_readme(reader)
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0
    shown = re.search(r"```text\n(.+?)```", PAGE, re.DOTALL)
    assert shown
    assert words(printed["stampede ingest alerts"])[-4:] == words(shown[1])
    assert "nothing is missing" in printed["stampede audit"]
    assert len((tmp_path / "lightcurve.csv").read_text().splitlines()) > 40
    assert "ZTF25aaaaaab" in (tmp_path / "cone.csv").read_text()
    assert Image.open(tmp_path / "science.png").size == (63, 63)
    assert (tmp_path / "science.fits").read_bytes()[:6] == b"SIMPLE"


def run_python_of_the_readme(reader: Reader) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code.replace("8080", reader.port)],
        cwd=reader.folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "client")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_begins_with_commands_of_the_tutorial() -> None:
    begin, end = (README.index(f"\n## {title}\n") for title in FIRST_SECTIONS)
    first = re.findall(r"^\$ (stampede .+|curl .+)$", README[begin:end], re.MULTILINE)
    assert len(first) > 4
    assert first == [command for command in COMMANDS if command in first]
