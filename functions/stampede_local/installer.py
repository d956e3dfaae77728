"""Find or install the programs that the local servers need."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path

from stampede.errors import SetupError
from stampede.runtime.progress import Progress, silent

# Each program, and the Debian package that contains it.
CEPH = {
    "ceph-mon": "ceph-mon",
    "ceph-osd": "ceph-osd",
    "radosgw": "radosgw",
    "ceph": "ceph-common",
}
KAFKA = {"java": "default-jre-headless", "mvn": "maven"}

KAFKA_VERSION = "4.3.1"
KAFKA_DIGESTS = files("stampede_local") / "kafka.sha256"
"""SHA-256 and name of each jar, as `sha256sum *.jar` prints them."""


def ensure(programs: Mapping[str, str], install: bool = False, progress: Progress = print) -> None:
    """Install the Debian packages of `programs` that are missing.

    Parameters
    ----------
    programs
        Debian package by program, for example `CEPH`.
    install
        Consent to `apt-get install`, which also needs root.
    progress
        Called with lines about the progress.

    Raises
    ------
    SetupError
        A program is missing and `install` is false or failed; the message has the command.
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
    progress(f"installing {', '.join(packages)} (about 20 s)")
    # Two processes install one after the other: apt-get would refuse the second.
    with Path(tempfile.gettempdir(), "stampede-apt").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(map(shutil.which, missing)):
            return
        _run(["apt-get", "update"], progress, r"Fetched ")
        _run(command, progress, r"(Fetched|Setting up) ")


def kafka_jars(progress: Progress = print) -> Path:
    """Directory of Kafka's jars, in the user's cache. The first time, Maven fetches them.

    That takes a minute: 45 jars, 44 MB, from the repository in Maven's own settings.

    Raises
    ------
    SetupError
        There is no Java 17; or Maven failed: the message has its last lines; or a jar is not the
        one that Stampede was tested with.
    """
    _check_java()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stampede"
    jars = cache / f"kafka-{KAFKA_VERSION}"
    if jars.is_dir():
        return jars
    ensure({"mvn": KAFKA["mvn"]}, progress=progress)
    progress(f"fetching Kafka {KAFKA_VERSION} by Maven into {jars} (44 MB)")
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
            progress,
            r"Copying kafka_",
        )
        check_jars(fetched)
        try:
            fetched.rename(jars)  # all jars or none
        except OSError:
            if not jars.is_dir():  # otherwise another process was faster
                raise
    return jars


def check_jars(directory: Path) -> None:
    """Compare the jars in `directory` with the list of their SHA-256 digests.

    Raises `SetupError`, which names the jars that differ, lack or are not in the list.
    """
    lines = KAFKA_DIGESTS.read_text().splitlines()
    expected = {name: digest for digest, name in (line.split() for line in lines)}
    found = {
        jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in directory.glob("*.jar")
    }
    if wrong := sorted(name for name in expected | found if expected.get(name) != found.get(name)):
        raise SetupError(
            f"what Maven fetched is not Kafka {KAFKA_VERSION} as it was tested: "
            f"{', '.join(wrong[:5])} of {len(wrong)} jars; check Maven's repository and proxy"
        )


def _check_java() -> None:
    """Raise `SetupError` unless there is Java 17 or later, which Kafka's broker needs."""
    ensure({"java": KAFKA["java"]}, progress=silent)
    output = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < 17:
        raise SetupError(
            f"Kafka {KAFKA_VERSION} needs Java 17, `java -version` says: {output.strip()}"
        )


def _run(command: list[str], progress: Progress, interesting: str) -> None:
    """Run `command` and report its interesting lines, and any line after 10 s of silence."""
    last: list[str] = []
    reported = time.monotonic()
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
            if re.search(interesting, line) or time.monotonic() - reported > 10:
                progress(f"  {line}")
                reported = time.monotonic()
    if child.returncode:
        lines = "\n".join(last)
        raise SetupError(f"`{' '.join(command)}` failed; its last lines:\n{lines}")
