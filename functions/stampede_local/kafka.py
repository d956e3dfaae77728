"""A real Kafka on one machine: one KRaft node, broker and controller in one Java process."""

import base64
import subprocess
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from stampede.errors import SetupError
from stampede.runtime.progress import Progress, silent
from stampede_local import installer
from stampede_local.ports import require_free
from stampede_local.process import Process, wait_until

_CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={advertised}
controller.listener.names=CONTROLLER
listener.security.protocol.map={protocols},CONTROLLER:PLAINTEXT
log.dirs={directory}/data
num.partitions=4
num.network.threads=2
num.io.threads=4
# Kafka's own topics have three copies by default, which one node cannot have.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=2
# By default a new group waits 3 s for more members.
group.initial.rebalance.delay.ms=0
log.segment.bytes=67108864
# Deleted records give their space back in seconds. The defaults are 5 minutes and one.
log.retention.check.interval.ms=5000
log.segment.delete.delay.ms=1000
# The default, 128 MB, is half of our heap.
log.cleaner.dedupe.buffer.size=8388608
# The default is 1 MB. The largest real alert with its cutouts is below that.
message.max.bytes=16777216
replica.fetch.max.bytes=16777216
auto.create.topics.enable=true
controlled.shutdown.enable=true
"""

_LOGGING = """\
Configuration:
  Appenders:
    Console:
      name: stdout
      PatternLayout: {pattern: "%d %p %m (%c)%n"}
  Loggers:
    Root: {level: WARN, AppenderRef: [{ref: stdout}]}
"""

# The full compiler does not pay off: without it a start takes 3.0 s of CPU in place of 5.3, and
# 200 MB in and out again 0.7 s in place of 1.2 (November 2026).
_JAVA = [
    *("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Djava.awt.headless=true",
]


class LocalKafka:
    """A Kafka broker at `bootstrap`. Its messages are in the directory and survive a restart.

    Parameters
    ----------
    directory
        Directory of the configuration, the log and the data.
    port
        The broker's port; the next one is the controller's.
    heap_mb
        Java's heap, MiB.
    advertised
        Each ``HOST:PORT`` at which other machines reach it. It listens on that port of every
        address and tells clients on that port to use that ``HOST:PORT``.
    progress
        Called with a line at every step of a start.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        heap_mb: int = 256,
        advertised: Sequence[str] = (),
        progress: Progress = silent,
    ) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.heap_mb = heap_mb
        self.advertised = tuple(advertised)
        self._progress = progress
        self._properties = self.directory / "server.properties"
        self.broker = Process("kafka", [], self.directory / "kafka.log")

    @property
    def bootstrap(self) -> str:
        """The ``bootstrap.servers`` of a client."""
        return f"127.0.0.1:{self.port}"

    @property
    def processes(self) -> list[Process]:
        """The one process; for a `Supervisor`."""
        return [self.broker]

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises
        ------
        SetupError
            Java or the jars are missing, or Kafka failed; the message has the end of its log.
        """
        jars = installer.kafka_jars(self._progress)
        require_free(self.port, self.port + 1)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._properties.write_text(self._config())
        logging = self.directory / "log4j2.yaml"
        logging.write_text(_LOGGING)
        java = [*_JAVA, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]
        if not (self.directory / "data" / "meta.properties").exists():
            self._format(java)
        self._progress(f"starting Kafka {installer.KAFKA_VERSION} in {self.directory}")
        heap = ["-Xms64m", f"-Xmx{self.heap_mb}m"]
        self.broker.command = [java[0], *heap, *java[1:], "kafka.Kafka", str(self._properties)]
        try:
            self.broker.start()
            wait_until(self._answers, self.broker)
        except BaseException:
            self.stop()
            raise
        self._progress(f"Kafka at {self.bootstrap}")

    def stop(self) -> None:
        """Stop the broker; the messages stay."""
        self.broker.stop()

    def __enter__(self) -> "LocalKafka":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _config(self) -> str:
        local = f"127.0.0.1:{self.port}"
        names = ["PLAINTEXT", *(f"OTHERS{i}" for i, _ in enumerate(self.advertised))]
        ports = [address.rpartition(":")[2] for address in self.advertised]
        listens = [local, *(f"0.0.0.0:{port}" for port in ports)]

        def line(addresses: Iterable[str]) -> str:
            return ",".join(f"{n}://{a}" for n, a in zip(names, addresses, strict=True))

        return _CONFIG.format(
            directory=self.directory,
            controller=self.port + 1,
            listeners=line(listens),
            advertised=line([local, *self.advertised]),
            protocols=",".join(f"{name}:PLAINTEXT" for name in names),
        )

    def _format(self, java: list[str]) -> None:
        self._progress(f"making Kafka's data directory in {self.directory}")
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            [
                *(java[0], "-Xmx64m", *java[1:]),
                *("kafka.tools.StorageTool", "format"),
                *(f"--cluster-id={cluster}", "-c", str(self._properties)),
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SetupError(f"Kafka could not make its data directory: {done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        # log_level: otherwise librdkafka reports every refused connection on standard error.
        client = AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 1000}
        )
        try:
            return bool(client.list_topics(timeout=0.5).brokers)
        except KafkaException:
            return False


def producer(bootstrap: str) -> Producer:
    """A client that sends large messages in batches and waits for the broker's acknowledgement."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 20,
            "message.max.bytes": 8 << 20,
            "queue.buffering.max.kbytes": 128 << 10,
        }
    )


def make_topics(bootstrap: str, topics: Sequence[str], partitions: int = 4) -> None:
    """Make the topics that do not exist yet, if there are any. Raises `SetupError`."""
    if not topics:  # the client refuses an empty list
        return
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for topic, made in admin.create_topics([NewTopic(t, partitions) for t in topics]).items():
        try:
            made.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise SetupError(f"cannot make topic {topic}: {error.args[0].str()}") from None
