"""The local servers of a plan: a Ceph and a Kafka if it has no address of one, a second Ceph."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.runtime.progress import Progress
from stampede_local import installer
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import LocalKafka, make_topics
from stampede_local.plan import SystemPlan
from stampede_local.ports import ServerPorts
from stampede_local.process import Process

USUAL_PORTS = {"ceph": 8400, "kafka": 9092, "notifications": 8410, "second-site": 8420}


class LocalServers:
    """Starts the servers of a plan.

    Parameters
    ----------
    supervise
        Called with the processes of each server that has started, in the order of their start.
    """

    def __init__(
        self,
        plan: SystemPlan,
        ports: ServerPorts,
        supervise: Callable[[list[Process]], None],
        progress: Progress,
    ) -> None:
        self._plan, self._ports = plan, ports
        self._supervise, self._progress = supervise, progress

    def start(self, settings: Settings) -> Settings:
        """Start a Ceph and a Kafka unless the plan has their addresses; returns settings for both.

        Raises `SetupError`.
        """
        plan = self._plan
        needs_ceph = not plan.store
        needs_kafka = bool(plan.topics) and not plan.kafka
        programs = (installer.CEPH if needs_ceph else {}) | (installer.KAFKA if needs_kafka else {})
        installer.ensure(programs, install=plan.install, progress=self._progress)
        with ThreadPoolExecutor(1) as pool:  # the first time, Maven fetches Kafka meanwhile
            jars = pool.submit(installer.kafka_jars, self._progress) if needs_kafka else None
            if needs_ceph:
                settings = self._start_ceph(settings)
            else:
                settings = settings.model_copy(update={"store": plan.store})
            if jars:
                jars.result()
        kafka = (plan.kafka or self._start_kafka()) if plan.topics else ""
        return settings.model_copy(update={"kafka": kafka, "topics": ",".join(plan.topics)})

    def start_second_site(self, settings: Settings) -> Settings:
        """Start a second Ceph; returns the settings with it as replica. Raises `SetupError`."""
        installer.ensure(installer.CEPH, install=self._plan.install, progress=self._progress)
        self._progress("starting a second Ceph, as another site")
        ceph = LocalCeph(
            self._plan.data / "second-site",
            self._ports.claim("second-site"),
            progress=self._progress,
        )
        for process in ceph.processes:
            process.name = f"second-{process.name}"
        ceph.start()
        self._supervise(ceph.processes)
        return settings.model_copy(update=ceph.address("stampede").as_second_site())

    def _start_ceph(self, settings: Settings) -> Settings:
        self._progress("starting a local Ceph")
        directory, port = self._plan.data / "ceph", self._ports.claim("ceph", self._plan.ceph_port)
        ceph = LocalCeph(directory, port, progress=self._progress)
        ceph.start()
        self._supervise(ceph.processes)
        return settings.model_copy(update=ceph.address("stampede").as_first_site())

    def _start_kafka(self) -> str:
        self._progress("starting a local Kafka")
        directory, port = (
            self._plan.data / "kafka",
            self._ports.claim("kafka", self._plan.kafka_port),
        )
        kafka = LocalKafka(directory, port, progress=self._progress)
        kafka.start()
        self._supervise(kafka.processes)
        make_topics(kafka.bootstrap, Topics.parse(",".join(self._plan.topics)).names)
        return kafka.bootstrap
