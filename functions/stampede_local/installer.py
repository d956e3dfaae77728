"""What the local servers need on this machine: found, or installed where that is allowed."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.resources import as_file, files
from pathlib import Path

from stampede.errors import SetupError

Say = Callable[[str], None]

# The program looked for, and the Debian package it is in.
CEPH = {
    "ceph-mon": "ceph-mon",
    "ceph-osd": "ceph-osd",
    "radosgw": "radosgw",
    "ceph": "ceph-common",
}
KAFKA = {"java": "default-jre-headless", "mvn": "maven"}

KAFKA_VERSION = "4.3.1"


def ensure(programs: Mapping[str, str], install: bool = False, say: Say = print) -> None:
    """Make sure that `programs` are here, installing Debian packages where told to.

    Parameters
    ----------
    programs
        Program to Debian package, such as `CEPH`.
    install
        Consent to `apt-get install`; it is done as root only.
    say
        Called with a line of progress now and then.

    Raises
    ------
    SetupError
        Something is missing and was not to be, or could not be, installed: with the command.
    """
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return
    packages = sorted({programs[program] for program in missing})
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if not install or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SetupError(
            f"this machine lacks {', '.join(missing)}. On Debian or Ubuntu, run:\n"
            f"  sudo apt-get update && sudo {' '.join(command)}"
        )
    say(f"installing {', '.join(packages)} (about 20 s)")
    # Two that start at a time install one after the other: apt-get would refuse the second.
    with Path(tempfile.gettempdir(), "stampede-apt").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(map(shutil.which, missing)):
            return
        _run(["apt-get", "update"], say, r"Fetched ")
        _run(command, say, r"(Fetched|Setting up) ")


def kafka_jars(say: Say = print) -> Path:
    """Directory of Kafka's jars; fetched by Maven the first time, then kept in the user's cache.

    45 jars, 44 MB, a minute. Maven finds them where its own settings say.

    Raises
    ------
    SetupError
        There is no Java 17, or Maven failed: with its last lines.
    """
    _check_java()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stampede"
    jars = cache / f"kafka-{KAFKA_VERSION}"
    if jars.is_dir():
        return jars
    ensure({"mvn": KAFKA["mvn"]}, say=say)
    say(f"fetching Kafka {KAFKA_VERSION} by Maven into {jars} (44 MB)")
    cache.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=cache) as temporary,
        as_file(files("stampede_local") / "pom.xml") as pom,
    ):
        fetched = Path(temporary) / "jars"
        _run(
            [
                "mvn",
                "--batch-mode",
                f"--file={pom}",
                f"-Dkafka.version={KAFKA_VERSION}",
                f"-DoutputDirectory={fetched}",
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
            ],
            say,
            r"Copying kafka_",
        )
        try:
            fetched.rename(jars)  # whole or not at all
        except OSError:
            if not jars.is_dir():  # else another process was sooner
                raise
    return jars


def _check_java() -> None:
    """Raise unless there is a Java that runs Kafka's broker, which asks for 17."""
    ensure({"java": KAFKA["java"]}, say=lambda line: None)
    told = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < 17:
        raise SetupError(
            f"Kafka {KAFKA_VERSION} needs Java 17, `java -version` says: {told.strip()}"
        )


def _run(command: list[str], say: Say, interesting: str) -> None:
    """Run `command`, saying its interesting lines, and after 10 s of silence that it still runs."""
    last: list[str] = []
    spoken = time.monotonic()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    ) as child:
        assert child.stdout is not None
        for line in map(str.strip, child.stdout):
            last = [*last[-14:], line]
            if re.search(interesting, line) or time.monotonic() - spoken > 10:
                say(f"  {line}")
                spoken = time.monotonic()
    if child.returncode:
        lines = "\n".join(last)
        raise SetupError(f"`{' '.join(command)}` failed; its last lines:\n{lines}")
