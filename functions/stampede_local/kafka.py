"""A real Kafka on one machine: one KRaft node, broker and controller in one Java process."""

import base64
import subprocess
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from stampede.errors import SetupError
from stampede_local import installer
from stampede_local.process import Process, require_free, wait_until

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
# Kafka's own topics have three copies by default, which one node cannot give.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=2
# A new group waits 3 s for further members.
group.initial.rebalance.delay.ms=0
log.segment.bytes=67108864
# 128 MB by default, half of our heap.
log.cleaner.dedupe.buffer.size=8388608
# The largest real alert with its cutouts is below 1 MB; the default is 1 MB.
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

_JAVA = ["java", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true"]


class LocalKafka:
    """A Kafka broker at `bootstrap`. Its messages lie under the directory and outlive a restart.

    Parameters
    ----------
    directory
        Where configuration, log and data lie.
    port
        The broker's port; the one after it is the controller's.
    heap_mb
        Java's heap, MiB.
    advertised
        Each ``HOST:PORT`` by which others reach it: it listens on that port of every address, and
        tells those who come by it to go on there.
    say
        Called with a line at every step of a start.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        heap_mb: int = 256,
        advertised: Sequence[str] = (),
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.heap_mb = heap_mb
        self.advertised = tuple(advertised)
        self._say = say
        self._properties = self.directory / "server.properties"
        self.broker = Process("kafka", [], self.directory / "kafka.log")

    @property
    def bootstrap(self) -> str:
        """What a client is given as ``bootstrap.servers``."""
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
            Java or the jars are missing, or Kafka failed: with the end of its log.
        """
        jars = installer.kafka_jars(self._say)
        require_free(self.port, self.port + 1)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._properties.write_text(self._config())
        logging = self.directory / "log4j2.yaml"
        logging.write_text(_LOGGING)
        java = [*_JAVA, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars}/*"]
        if not (self.directory / "data" / "meta.properties").exists():
            self._format(java)
        self._say(f"starting Kafka {installer.KAFKA_VERSION} in {self.directory}")
        heap = ["-Xms64m", f"-Xmx{self.heap_mb}m"]
        self.broker.command = [java[0], *heap, *java[1:], "kafka.Kafka", str(self._properties)]
        try:
            self.broker.start()
            wait_until(self._answers, self.broker)
        except BaseException:
            self.stop()
            raise
        self._say(f"Kafka at {self.bootstrap}")

    def stop(self) -> None:
        """Stop it; the messages stay."""
        self.broker.stop()

    def __enter__(self) -> "LocalKafka":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _config(self) -> str:
        here = f"127.0.0.1:{self.port}"
        names = ["PLAINTEXT", *(f"OTHERS{i}" for i, _ in enumerate(self.advertised))]
        ports = [address.rpartition(":")[2] for address in self.advertised]
        listens = [here, *(f"0.0.0.0:{port}" for port in ports)]

        def line(addresses: Iterable[str]) -> str:
            return ",".join(f"{n}://{a}" for n, a in zip(names, addresses, strict=True))

        return _CONFIG.format(
            directory=self.directory,
            controller=self.port + 1,
            listeners=line(listens),
            advertised=line([here, *self.advertised]),
            protocols=",".join(f"{name}:PLAINTEXT" for name in names),
        )

    def _format(self, java: list[str]) -> None:
        self._say(f"making Kafka's data directory in {self.directory}")
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            # Half a second of work: a full compiler would take longer to warm than to be of use.
            [
                *(java[0], "-Xmx64m", "-XX:TieredStopAtLevel=1", *java[1:]),
                *("kafka.tools.StorageTool", "format"),
                *(f"--cluster-id={cluster}", "-c", str(self._properties)),
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SetupError(f"Kafka could not make its data directory: {done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        # logger: librdkafka would tell standard error of every refused connection.
        client = AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 1000}
        )
        try:
            return bool(client.list_topics(timeout=0.5).brokers)
        except KafkaException:
            return False


def producer(bootstrap: str) -> Producer:
    """A client that sends large messages in good batches and waits for the broker's word."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 20,
            "message.max.bytes": 8 << 20,
            "queue.buffering.max.kbytes": 128 << 10,
        }
    )
