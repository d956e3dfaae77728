"""The servers of a measurement: those of `stampede up`, with temporary data."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.runtime.progress import silent
from stampede.store.s3.bucket import S3Objects
from stampede_bench.figures import Context
from stampede_bench.instruments.bucket import open_bucket
from stampede_local import installer
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import LocalKafka
from stampede_local.plan import SystemPlan
from stampede_local.ports import free_port
from stampede_local.process import Process
from stampede_local.supervisor import State
from stampede_local.system import System


class Servers(NamedTuple):
    """A Ceph, and a Kafka if the benchmark needs one."""

    ceph: LocalCeph
    kafka: LocalKafka | None

    def settings(self, bucket: str) -> Settings:
        """Make a bucket; the settings to reach it."""
        kafka = self.kafka.bootstrap if self.kafka else ""
        settings = Settings().model_copy(
            update=self.ceph.address(bucket).as_first_site() | {"kafka": kafka}
        )
        open_bucket(settings).ensure_bucket()
        return settings

    def bucket(self, name: str) -> S3Objects:
        """Make a bucket."""
        return open_bucket(self.settings(name))

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        processes = [*self.ceph.processes, *(self.kafka.processes if self.kafka else ())]
        return pids(processes)


@contextmanager
def servers(context: Context, kafka: bool, osds: int = 1) -> Iterator[Servers]:
    """Start the servers, and stop them afterwards."""
    progress = context.progress
    installer.ensure(installer.CEPH, context.install, progress)
    with ExitStack() as stack:
        ceph = stack.enter_context(
            LocalCeph(context.scratch / "ceph", free_port(50), osds=osds, progress=progress)
        )
        broker = None
        if kafka:
            installer.ensure(installer.KAFKA, context.install, progress)
            installer.kafka_jars(progress)
            directory = context.scratch / "kafka"
            broker = stack.enter_context(LocalKafka(directory, free_port(2), progress=progress))
        yield Servers(ceph, broker)


def system(
    context: Context,
    name: str,
    settings: Settings,
    topics: tuple[str, ...],
    sources: bool = False,
    kind: type[System] = System,
) -> System:
    """The functions on servers that already run; `topics` and `sources` as of `SystemPlan`."""
    plan = SystemPlan(
        context.scratch / name,
        settings.store,
        settings.kafka,
        topics,
        free_port(),
        install=False,
        sources=sources,
    )
    made = kind(plan, silent, reporter(context))
    made.settings = settings
    return made


def reporter(context: Context) -> Callable[[Process, State], None]:
    """What tells the progress that a process of a `System` has died."""

    def report(process: Process, state: State) -> None:
        if state is State.WAITING:
            ended = f"{process.name} ended with status {process.status}"
            context.progress(f"{ended}: {process.tail(3)}")

    return report


def pids(processes: list[Process]) -> dict[str, int]:
    """Process ids by name."""
    return {process.name: process.pid for process in processes if process.pid}
