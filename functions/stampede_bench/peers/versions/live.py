"""A version of Stampede that runs: its own `stampede up`, on servers that both versions use.

Nothing of an earlier version is imported here. It is used by what every version has: the command
`stampede up`, settings, the file `up.json`, HTTP.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from stampede.cli.running import UP
from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.events import functions_of
from stampede.events.auth.access import key_header
from stampede.store.s3.bucket import S3Objects
from stampede_bench.figures import Context
from stampede_bench.ingestion.cost import totals
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.cpu import processes
from stampede_bench.instruments.servers import Servers
from stampede_bench.peers.checkout import Checkout
from stampede_local.kafka import make_topics
from stampede_local.ports import free_port
from stampede_local.process import Process, wait_until
from stampede_local.up import send

START_SECONDS = 300.0  # of a dozen processes, on a busy machine
STALLED_SECONDS = 180.0
COMMAND_SECONDS = 300.0
LOOK_SECONDS = 2.0  # each look at the metrics takes CPU time
FLUSHED = "stampede_flush_alerts_total"
THUMBNAILS = "thumbnails"
# A version is stopped while the other is measured: Kafka must not give its partitions away.
_KAFKA_OPTIONS = {"session.timeout.ms": "1500000", "max.poll.interval.ms": "1500000"}


class Version(NamedTuple):
    """A version: its title in tables, its Python, and the variables with which that imports it."""

    title: str
    python: str
    environment: dict[str, str]


def this_version() -> Version:
    """The version that measures."""
    return Version("this version", sys.executable, {})


def version_of(checkout: Checkout) -> Version:
    """The version of a checkout."""
    return Version(checkout.title, checkout.python, checkout.environment)


class Live:
    """A version that runs, on a bucket of its own. Its processes are stopped but for `awake`.

    Attributes
    ----------
    version
        Which one.
    bucket
        Where it stores.
    settings
        The settings with which this process reaches Kafka, the store and the functions.
    urls
        URL of each process by name.
    pids
        Process ids by name, without that of `up`: it sends events at times of its own.
    """

    def __init__(
        self,
        version: Version,
        settings: Settings,
        environment: dict[str, str],
        data: Path,
        pid: int,
    ) -> None:
        running = json.loads((data / UP).read_text())
        self.version = version
        self.bucket: S3Objects = open_bucket(settings)
        key = SecretStr(running["event_key"])
        self.settings = settings.model_copy(update={"event_key": key})
        self.urls: dict[str, str] = running["urls"]
        self.pids = children(pid)
        self._environment, self._data, self._up = environment, data, pid
        self._signal(signal.SIGSTOP, self._all)

    @property
    def _all(self) -> list[int]:
        return [self._up, *self.pids.values()]

    @contextmanager
    def awake(self, *names: str) -> Iterator[None]:
        """Let processes run for a while: these, or all but `read`, which looks for runs itself."""
        chosen = [self.pids[name] for name in names or self.pids if names or name != "read"]
        self._signal(signal.SIGCONT, chosen)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP, chosen)

    def end(self) -> None:
        """Tell `up` to end, which ends the others."""
        self._signal(signal.SIGTERM, [self._up])
        self._signal(signal.SIGCONT, self._all)

    def topic(self, survey: str) -> str:
        """The topic from which it takes the alerts of a survey."""
        return topic_of(self.bucket.bucket, survey)

    def tell(self, name: str) -> None:
        """Send a function the event of a timer; it has made a pass when this returns."""
        send(name, self.urls[name], key_header(self.settings))

    def run(self, *words: str, **settings: str) -> None:
        """Run one of its commands, with settings. Raises `StampedeError` if that fails."""
        done = subprocess.run(
            [self.version.python, "-m", "stampede", *words, "--data", str(self._data)],
            env=os.environ | self._environment | settings,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        if done.returncode:
            end = (done.stdout + done.stderr)[-1000:]
            raise StampedeError(f"{self.version.title}: stampede {' '.join(words)} failed: {end}")

    def wait(self, count: int, functions: Sequence[str] = ()) -> None:
        """Wait until these functions, or those that take alerts, have stored so many in all.

        Raises `StampedeError` if they stall.
        """
        best, since = -1, time.monotonic()
        while True:
            names = functions or functions_of(self.urls)
            stored = [totals(self.urls[name], FLUSHED)[FLUSHED] for name in names]
            if min(stored) >= count:
                return
            if sum(stored) > best:
                best, since = sum(stored), time.monotonic()
            elif time.monotonic() - since > STALLED_SECONDS:
                raise StampedeError(
                    f"{self.version.title} stores nothing more: {stored} of {count}"
                )
            time.sleep(LOOK_SECONDS)

    def _signal(self, number: int, pids: Sequence[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@contextmanager
def started(
    context: Context,
    running: Servers,
    versions: Sequence[Version],
    name: str,
    surveys: Sequence[str],
    sources: bool,
) -> Iterator[list[Live]]:
    """Start versions, each on a bucket of its own, with a topic for each survey."""
    begun: list[tuple[Version, Settings, Process]] = []
    found: list[Live] = []
    try:
        for number, version in enumerate(versions):
            settings = running.settings(f"{name}-{number}")
            begun.append(
                (version, settings, begin(context, running, version, settings, surveys, sources))
            )
        for version, settings, process in begun:
            data = context.scratch / process.name
            wait_until(partial(recorded, data), process, START_SECONDS)
            assert process.pid
            found.append(Live(version, settings, process.env, data, process.pid))
            context.progress(f"{version.title} runs: {', '.join(found[-1].pids)}")
        yield found
    finally:
        for live in found:
            live.end()
        for _, _, process in begun:
            process.stop()


def begin(
    context: Context,
    running: Servers,
    version: Version,
    settings: Settings,
    surveys: Sequence[str],
    sources: bool,
) -> Process:
    """Start the `stampede up` of a version; its data are in a folder with the bucket's name."""
    assert running.kafka
    name = open_bucket(settings).bucket
    topics = [topic_of(name, survey) for survey in surveys]
    make_topics(running.kafka.bootstrap, topics)
    words = [
        *("--store", settings.store, "--kafka", running.kafka.bootstrap),
        *("--topics", ",".join(topics), "--port", str(free_port())),
        *(
            "--data",
            str(context.scratch / name),
            "--no-install",
            *(["--sources"] if sources else []),
        ),
    ]
    environment = version.environment | {
        "STAMPEDE_ACCESS_KEY": running.ceph.keys.access_key,
        "STAMPEDE_SECRET_KEY": running.ceph.keys.secret_key,
        "STAMPEDE_GROUP": name,
        "STAMPEDE_KAFKA_OPTIONS": json.dumps(_KAFKA_OPTIONS),
    }
    process = Process(
        name,
        [version.python, "-m", "stampede", "up", *words],
        context.scratch / f"{name}.log",
        environment,
    )
    context.progress(f"starting {version.title}{', with sources' if sources else ''}")
    process.start()
    return process


def topic_of(name: str, survey: str) -> str:
    """The topic from which what stores in a bucket takes the alerts of a survey."""
    return f"{name}-{survey}"


def recorded(data: Path) -> bool:
    """Whether `stampede up` has written all of the file that says how to reach it."""
    try:
        return bool(json.loads((data / UP).read_text()))
    except (OSError, ValueError):
        return False


def children(pid: int) -> dict[str, int]:
    """The functions that a `stampede up` has started: their process ids by name.

    A second of the same name, such as another source, has a number.
    """
    found: dict[str, int] = {}
    for child, parent in processes():
        if parent == pid:
            with suppress(OSError):
                words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
                if "serve" in words:
                    name = words[words.index("serve") + 1]
                    others = sum(each.partition(" ")[0] == name for each in found)
                    found[f"{name} {others + 1}" if others else name] = child
    return found
