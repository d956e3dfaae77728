"""All of Stampede on one machine: the functions and their servers as supervised processes.

A cluster has Knative Services, a Kafka and an S3 endpoint. Here the same functions, with the same
events between them, are processes on loopback.
"""

import json
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from stampede.cli.running import UP
from stampede.config.settings import Settings
from stampede.events import ALERT_FUNCTIONS, BOTH_TABLES
from stampede.events.auth.access import url_with_key
from stampede.events.http.probes import is_ready
from stampede.proofs.signatures import write_key
from stampede.runtime.progress import Progress, silent
from stampede.store.ceph import bucket_notifications
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.s3.bucket import S3Objects
from stampede_local import environment
from stampede_local.plan import SystemPlan
from stampede_local.ports import ServerPorts, free_port, require_free
from stampede_local.process import Process, wait_until
from stampede_local.reach import require_kafka, require_writable
from stampede_local.servers import USUAL_PORTS, LocalServers
from stampede_local.single import announced, only_one
from stampede_local.supervisor import State, Supervisor

PROOF_KEY = "proof.pem"
"""The file with the key for the proofs of nights, among the data."""
SCRUB_SECONDS = 5  # of reading in each pass: this machine has other work
FUNCTIONS = ("deadletters", "compact", "read")
READY_SECONDS = 150.0  # a busy machine takes a minute to start a dozen processes
# The highest stage stops first: the sources of events, then the functions, then the servers.
FUNCTION_STAGE, SOURCE_STAGE = 10, 11
SOURCE = "source"
KAFKA = "kafka"


class System:
    """A running system: everything started and supervised.

    Parameters
    ----------
    plan
        What to run.
    progress
        Called with a line at every step.
    report
        Called with a process and its new state, see `Supervisor`.

    Attributes
    ----------
    settings
        The settings with which this process reaches the store and Kafka.
    urls
        URL of each process by name.
    processes
        Every process by name, local servers included.
    """

    def __init__(
        self, plan: SystemPlan, progress: Progress, report: Callable[[Process, State], None]
    ) -> None:
        self.plan = plan
        self.settings = with_event_key(Settings())
        self.urls: dict[str, str] = {}
        self.processes: dict[str, Process] = {}
        self.supervisor = Supervisor(report)
        self._progress = progress
        self._triggers = self.settings.triggers
        self._stack = ExitStack()

    def __enter__(self) -> "System":
        try:
            self._start()
        except BaseException:
            self._progress("stopping what was started")
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress("stopping: alerts in memory are stored, then each process ends")
        self._stack.close()
        self._progress("stopped")

    def _start(self) -> None:
        self.plan.data.mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(only_one(self.plan.data))
        self.settings = with_proof_key(self.settings, self.plan.data / PROOF_KEY)
        self._triggers = environment.triggers_file(
            self.settings, self.plan.triggers, self.plan.data
        )
        require_free(self.plan.port)
        if self.plan.kafka and self.plan.topics:
            reached = self.settings.model_copy(update={"kafka": self.plan.kafka})
            require_kafka(reached, self.plan.topics, self._progress)
        ports = ServerPorts(self.plan.data / "ports.json", USUAL_PORTS)
        self._stack.callback(ports.close)
        # Before Ceph starts: Ceph may give up a topic whose receiver refuses a connection, until
        # Ceph is restarted. This socket listens while no process accepts.
        listening = None if self.plan.store else self._listen(ports.claim("notifications"))
        self._stack.enter_context(self.supervisor)
        self._start_servers(ports)
        self._progress("starting the functions")
        for name in FUNCTIONS:
            self._start_function(name)
        self._start_broker()
        if listening:
            self._start_notifications(listening)
        self._start_alert_functions()
        for name, url in self.urls.items():
            # What reads Kafka is not ready while that lacks the topics, which may come later.
            may_wait = name.startswith(SOURCE) or name in (BOTH_TABLES, *ALERT_FUNCTIONS)
            probe = "liveness" if may_wait else "readiness"
            wait_until(partial(is_ready, url, probe), self.processes[name], READY_SECONDS)
        ports.save()
        self._write_up_file()
        self._stack.enter_context(announced(self.plan.data))

    # -- servers and buckets

    def _listen(self, port: int) -> socket.socket:
        listening = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._stack.callback(listening.close)
        return listening

    def _start_servers(self, ports: ServerPorts) -> None:
        """Start the local servers and make the buckets."""
        servers = LocalServers(self.plan, ports, self._supervise_server, self._progress)
        self.settings = servers.start(self.settings)
        self._make_bucket()
        if self.plan.replica:
            self.settings = self.settings.model_copy(update={"replica": self.plan.replica})
        elif self.plan.second_site:
            self.settings = servers.start_second_site(self.settings)
        if self.settings.replica:
            self._prepare(open_replica(self.settings))

    def _prepare(self, objects: Objects) -> None:
        """Make the bucket if it is missing, and see that it can be written."""
        if isinstance(objects, S3Objects):
            objects.ensure_bucket()
        require_writable(objects)

    def _make_bucket(self) -> None:
        objects = open_objects(self.settings)
        self._prepare(objects)
        if isinstance(objects, S3Objects):
            return
        directory = self.settings.store.removeprefix("file://")
        self._progress(
            f"the store is the directory {directory}: good for a try, "
            "but one disk and no S3; give --store http://HOST:PORT/BUCKET for a real one"
        )

    def _supervise_server(self, processes: Sequence[Process]) -> None:
        """Restart a server's processes when they die; stop them after everything that uses them.

        The processes are in the order of their start; the first is needed longest.
        """
        # Only sources need Kafka, and it takes longest to stop: it does so beside the functions.
        first = FUNCTION_STAGE if processes[0].name == KAFKA else 0
        for stage, process in enumerate(processes, first):
            self.processes[process.name] = process
            self.supervisor.add(process, stage)

    # -- functions

    def _start_broker(self) -> None:
        """Start the broker, the functions that subscribe to it, `reconcile` and `scrub`."""
        subscribers = environment.subscribers_of(self.settings)
        for function in subscribers.values():
            self._start_function(function)
        urls = {subscriber: self.urls[function] for subscriber, function in subscribers.items()}
        env = {
            "STAMPEDE_TRIGGERS": str(self._triggers),
            "STAMPEDE_SUBSCRIBERS": json.dumps(self.settings.subscribers | urls),
        }
        self._start_function("broker", env)
        self._start_function("reconcile", {"K_SINK": self.urls["broker"]})
        self._start_function("scrub", {"STAMPEDE_SCRUB_SECONDS": str(SCRUB_SECONDS)})

    def _start_notifications(self, listening: socket.socket) -> None:
        """Start the receiver of Ceph's notifications on a socket that listens already."""
        env = {"K_SINK": self.urls["broker"], "STAMPEDE_SOCKET": str(listening.fileno())}
        port = listening.getsockname()[1]
        self._start_process(
            "notifications", "notifications", env, port, SOURCE_STAGE, [listening.fileno()]
        )
        update = {"notifications": url_with_key(self.urls["notifications"], self.settings)}
        bucket_notifications.setup(self.settings.model_copy(update=update), silent)

    def _start_alert_functions(self) -> None:
        """Start what stores alerts: one process that reads Kafka, or two that a source sends to."""
        if self.plan.sources:
            for name in ALERT_FUNCTIONS:
                self._start_function(name)
            if self.plan.topics:
                env = environment.of_source(self.settings, self.urls)
                self._start_process(SOURCE, "source", env, free_port(), SOURCE_STAGE)
            return
        env = {}
        if self.plan.topics:
            env = environment.of_input(self.settings, self.urls)
            env["STAMPEDE_FROM_KAFKA"] = "true"
        self._start_process(BOTH_TABLES, BOTH_TABLES, env, free_port(), SOURCE_STAGE)

    def _start_function(self, name: str, env: Mapping[str, str] | None = None) -> None:
        port = self.plan.port if name == "read" else free_port()
        self._start_process(name, name, env or {}, port, FUNCTION_STAGE)

    def _start_process(
        self,
        name: str,
        function: str,
        env: Mapping[str, str],
        port: int,
        stage: int,
        inherits: Sequence[int] = (),
    ) -> None:
        """Start `stampede serve FUNCTION` on a port, supervised."""
        self.urls[name] = f"http://127.0.0.1:{port}"
        process = Process(
            name,
            [sys.executable, "-m", "stampede", "serve", function],
            self.plan.data / "logs" / f"{name}.log",
            {**environment.of_process(function, self.settings), **env, "STAMPEDE_PORT": str(port)},
            inherits,
        )
        self.processes[name] = process
        process.start()
        self.supervisor.add(process, stage)

    def _write_up_file(self) -> None:
        """Write how other commands reach this system, into a file that is deleted when it stops."""
        running = {
            "pid": os.getpid(),
            "urls": self.urls,
            "logs": {name: str(process.log) for name, process in self.processes.items()},
            **environment.stores(self.settings),
            "region": self.settings.region,
            "ca_file": str(self.settings.ca_file) if self.settings.ca_file else None,
            "kafka": self.settings.kafka,
            "topics": self.settings.topics,
            "group": self.settings.group,
            "event_key": self.settings.event_key.get_secret_value(),
            "proof_key": self.settings.proof_key,
        }
        path = self.plan.data / UP
        path.unlink(missing_ok=True)  # its mode may be another
        path.touch(mode=0o600)
        path.write_text(json.dumps(running, indent=1))
        self._stack.callback(path.unlink, missing_ok=True)


def with_event_key(settings: Settings) -> Settings:
    """The settings with a key for events: their own, or a new one, drawn at random."""
    if settings.event_key.get_secret_value():
        return settings
    return settings.model_copy(update={"event_key": SecretStr(secrets.token_urlsafe(32))})


def with_proof_key(settings: Settings, file: Path) -> Settings:
    """The settings with a key for the proofs of nights: their own, or that of a file, made once."""
    if settings.proof_key:
        return settings
    if not file.exists():
        write_key(file)
    return settings.model_copy(update={"proof_key": str(file)})
