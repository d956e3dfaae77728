"""The servers of a measurement: those that `stampede up` starts, on data that goes away."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from stampede.settings import Settings
from stampede.store.address import StoreAddress
from stampede.store.open import open_objects
from stampede.store.s3 import S3Objects
from stampede_bench.figures import Context
from stampede_local import installer
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import LocalKafka
from stampede_local.process import Process, State, free_port
from stampede_local.system import System, SystemPlan


class Servers(NamedTuple):
    """A Ceph, and a Kafka where there is a need for one."""

    ceph: LocalCeph
    kafka: LocalKafka | None

    def settings(self, bucket: str) -> Settings:
        """Those to reach a bucket, which is made."""
        store = StoreAddress(
            f"{self.ceph.endpoint}/{bucket}", self.ceph.access_key, self.ceph.secret_key
        )
        kafka = self.kafka.bootstrap if self.kafka else ""
        settings = Settings().model_copy(update=store.as_first_site() | {"kafka": kafka})
        objects(settings).ensure_bucket()
        return settings

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        everyone = [*self.ceph.processes, *(self.kafka.processes if self.kafka else ())]
        return pids(everyone)


@contextmanager
def servers(context: Context, kafka: bool) -> Iterator[Servers]:
    """Start them; stop them afterwards."""
    say = context.say
    installer.ensure(installer.CEPH, context.install, say)
    with ExitStack() as stack:
        ceph = stack.enter_context(LocalCeph(context.scratch / "ceph", free_port(50), say=say))
        broker = None
        if kafka:
            installer.ensure(installer.KAFKA, context.install, say)
            installer.kafka_jars(say)
            directory = context.scratch / "kafka"
            broker = stack.enter_context(LocalKafka(directory, free_port(2), say=say))
        yield Servers(ceph, broker)


def system(context: Context, name: str, settings: Settings, topics: tuple[str, ...]) -> System:
    """The functions, and sources where there are topics, over servers that run already."""

    def report(process: Process, state: State) -> None:
        if state is State.WAITING:
            context.say(f"{process.name} ended with status {process.status}: {process.tail(3)}")

    plan = SystemPlan(
        context.scratch / name, settings.store, settings.kafka, topics, free_port(), install=False
    )
    made = System(plan, lambda _: None, report)
    made.settings = settings
    return made


def objects(settings: Settings) -> S3Objects:
    """The bucket of the settings."""
    found = open_objects(settings)
    assert isinstance(found, S3Objects)
    return found


def empty(bucket: S3Objects) -> None:
    """Delete what a round stored, so that the next finds room."""
    for info in bucket.list(""):
        with suppress(OSError):
            bucket.delete(info.key)


def pids(processes: list[Process]) -> dict[str, int]:
    """Process ids by name."""
    return {process.name: process.pid for process in processes if process.pid}
