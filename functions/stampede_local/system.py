"""All of Stampede on one machine: which processes there are, with which settings, in which order.

The same functions and the same events as on a cluster; where the cluster has Knative Services
and a Kafka and an S3 endpoint of its own, here are processes on loopback.
"""

import json
import os
import socket
import sys
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from stampede.cli.running import UP
from stampede.errors import SetupError
from stampede.events.triggers import read_triggers
from stampede.functions import ALERT_FUNCTIONS
from stampede.functions.apps import APPS
from stampede.settings import Settings
from stampede.store import bucket_notifications
from stampede.store.address import StoreAddress
from stampede.store.open import open_objects, open_replica
from stampede.store.s3 import S3Objects
from stampede_local import installer
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import LocalKafka
from stampede_local.process import Process, State, Supervisor, free_port, require_free, wait_until

Say = Callable[[str], None]

FUNCTIONS = (*ALERT_FUNCTIONS, "deadletters", "compact", "read")
READY_SECONDS = 150.0  # a busy machine takes a minute to start a dozen processes
# When a process is stopped, the highest first: what feeds the functions, then the functions, then
# the servers they use.
FUNCTION, SOURCES = 10, 11
# A source that was killed is missed after so long, and its partitions given to the next; 45 s is
# the client's default.
MISSED = {"session.timeout.ms": "10000"}
USUAL_PORTS = {"ceph": 8400, "kafka": 9092, "notifications": 8410, "second-site": 8420}


class SystemPlan(NamedTuple):
    """What is wanted.

    Attributes
    ----------
    data
        Directory of everything that is kept: the local Ceph and Kafka, logs.
    store, kafka
        Where they are; None for local ones, which are started.
    topics
        What the sources read; none for no Kafka at all.
    port
        Of `read`, for people; the other processes take free ports.
    install
        Consent to install Debian packages.
    replica, second_site
        A second site, to which everything is copied: where it is, or whether to start one.
    """

    data: Path
    store: str | None
    kafka: str | None
    topics: tuple[str, ...]
    port: int
    install: bool
    replica: str | None = None
    second_site: bool = False


class System:
    """Everything, started and supervised.

    Attributes
    ----------
    settings
        Those by which this process reaches the store and Kafka.
    urls
        Where each process answers, by name.
    """

    def __init__(
        self, plan: SystemPlan, say: Say, report: Callable[[Process, State], None]
    ) -> None:
        self.plan = plan
        self._say = say
        self._stack = ExitStack()
        self.supervisor = Supervisor(report)
        self.settings = Settings()
        self.urls: dict[str, str] = {}
        self.processes: dict[str, Process] = {}

    def __enter__(self) -> "System":
        try:
            self._start()
        except BaseException:
            self._say("stopping what was started")
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._say("stopping: what is held is stored, then each process ends")
        self._stack.close()

    def _start(self) -> None:
        plan = self.plan
        plan.data.mkdir(parents=True, exist_ok=True)
        require_free(plan.port)
        self._ports = self._remembered_ports()
        told = None if plan.store else self._listen("notifications")
        self._stack.enter_context(self.supervisor)
        ceph, kafka_here = not plan.store, bool(plan.topics) and not plan.kafka
        needed = (installer.CEPH if ceph else {}) | (installer.KAFKA if kafka_here else {})
        installer.ensure(needed, install=plan.install, say=self._say)
        with ThreadPoolExecutor(1) as pool:  # the first time, Kafka is fetched while Ceph starts
            jars = pool.submit(installer.kafka_jars, self._say) if kafka_here else None
            store = plan.store or self._ceph()
            if jars:
                jars.result()
        kafka = (plan.kafka or self._kafka()) if plan.topics else ""
        self.settings = self.settings.model_copy(
            update={"store": store, "kafka": kafka, "topics": ",".join(plan.topics)}
        )
        objects = open_objects(self.settings)
        if isinstance(objects, S3Objects):
            objects.ensure_bucket()
        else:
            self._say(
                f"the store is the directory {store.removeprefix('file://')}: good for a try, "
                "but one disk and no S3; give --store http://HOST:PORT/BUCKET for a real one"
            )
        if plan.second_site and not plan.replica:
            self._second_ceph()
        elif plan.replica:
            self.settings = self.settings.model_copy(update={"replica": plan.replica})
        if self.settings.replica and isinstance(second := open_replica(self.settings), S3Objects):
            second.ensure_bucket()
        self._say("starting the functions")
        for name in FUNCTIONS:
            self._run(name, name, {})
        self._events(told)
        for name, table in ALERT_FUNCTIONS.items() if plan.topics else ():
            self._run(f"source-{name}", "source", self._source(name, table))
        for name, url in self.urls.items():
            wait_until(partial(answers, url), self.processes[name], READY_SECONDS)
        self._remember()

    def _events(self, told: socket.socket | None) -> None:
        """What happens when something was stored: the functions that want to know, the broker."""
        subscribers = subscribers_of(self.settings)
        for name in subscribers.values():
            self._run(name, name, {})
        urls = {subscriber: self.urls[name] for subscriber, name in subscribers.items()}
        self._run("broker", "broker", {"STAMPEDE_SUBSCRIBERS": json.dumps(urls)})
        self._run("reconcile", "reconcile", {"K_SINK": self.urls["broker"]})
        if told:
            self._run("notifications", "notifications", {"K_SINK": self.urls["broker"]}, told)
            to = {"notifications": self.urls["notifications"]}
            bucket_notifications.setup(self.settings.model_copy(update=to), lambda line: None)

    def _listen(self, name: str) -> socket.socket:
        """A socket that listens for a process, before, between and after its lives.

        Ceph may give up a topic whose receiver refuses a connection, until it is started anew.
        """
        listening = socket.create_server(("127.0.0.1", self._port(name)), backlog=1024)
        self._stack.callback(listening.close)
        return listening

    def _run(
        self, name: str, what: str, env: dict[str, str], listening: socket.socket | None = None
    ) -> None:
        port = self.plan.port if name == "read" else free_port()
        inherits: Sequence[int] = ()
        if listening:
            port, inherits = listening.getsockname()[1], [listening.fileno()]
            env = env | {"STAMPEDE_SOCKET": str(listening.fileno())}
        self.urls[name] = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "stampede", "serve", what]
        env = self._env() | env | {"STAMPEDE_PORT": str(port)}
        process = Process(name, command, self.plan.data / "logs" / f"{name}.log", env, inherits)
        self.processes[name] = process
        process.start()
        self.supervisor.add(process, SOURCES if what in ("source", "notifications") else FUNCTION)

    def _env(self) -> dict[str, str]:
        settings = self.settings
        return {
            "STAMPEDE_STORE": settings.store,
            "STAMPEDE_ACCESS_KEY": settings.access_key,
            "STAMPEDE_SECRET_KEY": settings.secret_key.get_secret_value(),
            "STAMPEDE_REPLICA": settings.replica,
            "STAMPEDE_REPLICA_ACCESS_KEY": settings.replica_access_key,
            "STAMPEDE_REPLICA_SECRET_KEY": settings.replica_secret_key.get_secret_value(),
            "STAMPEDE_HOST": "127.0.0.1",
        }

    def _source(self, name: str, table: str) -> dict[str, str]:
        return {
            "K_SINK": self.urls[name],
            "STAMPEDE_DEAD_LETTER_SINK": f"{self.urls['deadletters']}/{table}",
            "STAMPEDE_KAFKA": self.settings.kafka,
            "STAMPEDE_TOPICS": self.settings.topics,
            "STAMPEDE_GROUP": f"{self.settings.group}-{name}",
            "STAMPEDE_KAFKA_OPTIONS": json.dumps(MISSED | self.settings.kafka_options),
        }

    # -- the local servers

    def _ceph(self) -> str:
        self._say("starting a local Ceph")
        directory = self.plan.data / "ceph"
        ceph = LocalCeph(directory, self._port("ceph"), say=self._say)
        ceph.start()
        self._supervise(ceph.processes)
        self.settings = self.settings.model_copy(
            update={
                "access_key": ceph.access_key,
                "secret_key": type(self.settings.secret_key)(ceph.secret_key),
            }
        )
        return f"{ceph.endpoint}/stampede"

    def _second_ceph(self) -> None:
        installer.ensure(installer.CEPH, install=self.plan.install, say=self._say)
        self._say("starting a second Ceph, as another site")
        ceph = LocalCeph(
            self.plan.data / "second-site",
            self._port("second-site"),
            access_key="second-site",
            secret_key="second-site-local",
            say=self._say,
        )
        for process in ceph.processes:
            process.name = f"second-{process.name}"
        ceph.start()
        self._supervise(ceph.processes)
        site = StoreAddress(f"{ceph.endpoint}/stampede", ceph.access_key, ceph.secret_key)
        self.settings = self.settings.model_copy(update=site.as_second_site())

    def _kafka(self) -> str:
        self._say("starting a local Kafka")
        kafka = LocalKafka(self.plan.data / "kafka", self._port("kafka"), say=self._say)
        kafka.start()
        self._supervise(kafka.processes)
        make_topics(kafka.bootstrap, self.plan.topics)
        return kafka.bootstrap

    def _supervise(self, processes: list[Process]) -> None:
        """Have a local server started again if it dies, and stopped after all that use it."""
        for stage, process in enumerate(processes):  # what was started first is needed longest
            self.processes[process.name] = process
            self.supervisor.add(process, stage)

    def _port(self, name: str) -> int:
        """The port a server had last time, so that its URL stays; else its usual one; else any.

        Two ports in a row: Ceph's monitor and Kafka's controller take the second.
        """
        for port in (self._ports.get(name), USUAL_PORTS[name]):
            with suppress(SetupError):
                if port is not None:
                    self._claim(port)
                    require_free(port, port + 1)
                    self._ports[name] = port
                    return port
        self._ports[name] = free_port(2)
        return self._ports[name]

    def _claim(self, port: int) -> None:
        """Keep other systems off a port from now on; its server takes seconds to listen.

        Else two that start at once would share a Ceph. Raises `SetupError`.
        """
        claim = socket.socket(socket.AF_UNIX)
        self._stack.callback(claim.close)
        try:
            claim.bind(f"\0stampede-port-{port}")  # no file: Linux forgets it with the process
        except OSError:
            raise SetupError(f"port {port} is another system's") from None

    def _remembered_ports(self) -> dict[str, int]:
        with suppress(FileNotFoundError, ValueError, KeyError):
            return dict(json.loads((self.plan.data / "ports.json").read_text()))
        return {}

    def _remember(self) -> None:
        (self.plan.data / "ports.json").write_text(json.dumps(self._ports))
        running = {
            "pid": os.getpid(),
            "urls": self.urls,
            "store": self.settings.store,
            "access_key": self.settings.access_key,
            "secret_key": self.settings.secret_key.get_secret_value(),
            "replica": self.settings.replica,
            "replica_access_key": self.settings.replica_access_key,
            "replica_secret_key": self.settings.replica_secret_key.get_secret_value(),
            "kafka": self.settings.kafka,
            "topics": self.settings.topics,
        }
        path = self.plan.data / UP
        path.touch(mode=0o600)
        path.write_text(json.dumps(running, indent=1))
        self._stack.callback(path.unlink, missing_ok=True)


def subscribers_of(settings: Settings) -> dict[str, str]:
    """The functions that Triggers name and that there are here, by the Trigger's name for them."""
    found = {}
    for trigger in read_triggers(settings.triggers):
        if ref := trigger.spec.subscriber.ref:
            function = ref.name.removeprefix("stampede-")
            if function in APPS and (function != "replicate" or settings.replica):
                found[ref.name] = function
    return found


def make_topics(bootstrap: str, topics: tuple[str, ...], partitions: int = 4) -> None:
    """Make the topics that are not there. Raises `SetupError`."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for topic, made in admin.create_topics([NewTopic(t, partitions) for t in topics]).items():
        try:
            made.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise SetupError(f"cannot make topic {topic}: {error.args[0].str()}") from None


def answers(url: str) -> bool:
    """Whether a process is ready."""
    try:
        with urllib.request.urlopen(f"{url}/health/readiness", timeout=5) as response:
            return response.status == 200
    except (OSError, HTTPException):
        return False
