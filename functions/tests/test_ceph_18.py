"""`tools/ceph`: Ceph 18.2 out of Debian's packages, beside the Ceph of the machine."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "ceph"
# apt-get as the tool calls it: each argument is a line of `asked`.
APT = """
for word; do echo "$word" >> {asked}; done
case "$*" in
    *indextargets*) echo {uri} ;;
    *update) {update} ;;
    *download-only*) {download} ;;
esac
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs the tool with a shell script as `apt-get`, and a cache of its own."""
    asked = tmp_path / "asked"
    asked.touch()

    def run(*arguments: str, **script: str) -> "subprocess.CompletedProcess[str]":
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        parts = {"uri": "http://mirror.test/debian/", "update": "true", "download": "true"}
        text = APT.format(asked=asked, **(parts | script))
        (programs / "apt-get").write_text(f"#!/bin/sh\n{text}")
        (programs / "apt-get").chmod(0o755)
        env = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        return subprocess.run([TOOL, *arguments], capture_output=True, text=True, env=env)

    return run


def left(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache" / "stampede").iterdir()]


@pytest.mark.parametrize("arguments", [(), ("17.2",), ("16.2",)])
def test_another_version_is_refused(run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: tools/ceph 18.2")
    assert not (tmp_path / "asked").read_text()


def test_a_machine_without_an_archive_of_debian_is_told(run) -> None:
    done = run("18.2", uri="")
    assert (done.returncode, done.stdout) == (1, "")
    assert "tools/ceph: apt knows no archive of Debian here" in done.stderr


def test_a_signature_that_is_wrong_ends_it_and_leaves_nothing(run, tmp_path: Path) -> None:
    done = run("18.2", update="echo 'E: The repository is not signed.'; exit 100")
    assert done.returncode == 1
    assert "E: The repository is not signed." in done.stderr
    assert "apt-get update of Debian trixie from http://mirror.test/debian/ failed" in done.stderr
    assert left(tmp_path) == []


def test_a_package_that_is_no_package_leaves_nothing(run, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "stampede"
    done = run("18.2", download=f"echo junk > {folder}/ceph-part-*/apt/archives/a.deb")
    assert (done.returncode, done.stdout) == (1, "")
    assert "a.deb" in done.stderr
    assert left(tmp_path) == []


def test_apt_uses_the_machines_mirror_and_touches_no_state_of_the_machine(
    run, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    run("18.2", update=f"cp {tmp_path}/cache/stampede/ceph-part-*/apt/sources.list {source}")
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    assert source.read_text() == f"deb [signed-by={keys}] http://mirror.test/debian/ trixie main\n"
    asked = (tmp_path / "asked").read_text().splitlines()
    own = [word for word in asked if word.startswith(("Dir::State", "Dir::Cache"))]
    assert len(own) == 8
    assert all(f"={tmp_path}/cache/stampede/ceph-part-" in word for word in own)


def test_once_it_is_there_nothing_is_fetched(run, tmp_path: Path) -> None:
    programs = tmp_path / "cache" / "stampede" / "ceph-18.2" / "bin"
    programs.mkdir(parents=True)
    (programs / "ceph").touch(0o755)
    done = run("18.2")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{programs}\n", "")
    assert not (tmp_path / "asked").read_text()
