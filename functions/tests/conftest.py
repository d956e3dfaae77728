"""Real servers for the tests: one Ceph and one Kafka per session, and functions as processes.

Tests that use them get the mark ``integration``; ``-m "not integration"`` leaves these tests out.
"""

import gc
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from stampede.config.settings import Settings
from stampede.events.http.probes import is_ready
from stampede.runtime.progress import Progress
from stampede.store.open import open_objects
from stampede_local import installer
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import LocalKafka
from stampede_local.ports import free_port
from stampede_local.process import Process, wait_until
from tests.support import surroundings, tested_with
from tests.support.served import Served
from tests.support.store.ceph import minio_of
from tests.support.versitygw import VersityGateway

# No deadlines: the time of an example depends on how busy the machine is. The examples are the same
# each time, in `make check` only a fifth of them; the profile "search" looks for others, as
# `make fuzz` does.
ANY: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
hypothesis_settings.register_profile("stampede", derandomize=True, **ANY)
hypothesis_settings.register_profile("quick", derandomize=True, max_examples=20, **ANY)
hypothesis_settings.register_profile(
    "search", max_examples=int(os.environ.get("EXAMPLES", "100")), print_blob=True, **ANY
)
hypothesis_settings.load_profile("stampede")

SERVERS = {"ceph_packages", "ceph", "kafka_packages", "kafka", "gateway"}


def pytest_configure(config: pytest.Config) -> None:
    tested_with.register(config)
    surroundings.register(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("integration")
        if item.get_closest_marker("nightly"):
            item.add_marker("long")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among modules and tests: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Let go of them: libraries in C++ report at exit what was not freed."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def never_wait_for_disks() -> Iterator[None]:
    """No test cuts the power, and a sync takes 1.5 ms. Processes that tests start do sync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the code does."""
    return "asyncio"


@pytest.fixture(scope="session")
def ceph_packages(pytestconfig: pytest.Config) -> None:
    """Ceph's programs. Installs them when run as root."""
    installer.ensure(installer.CEPH, install=os.geteuid() == 0, progress=_progress(pytestconfig))


@pytest.fixture(scope="session")
def kafka_packages(pytestconfig: pytest.Config) -> Path:
    """Kafka's jars, and Java to run them."""
    installer.ensure(installer.KAFKA, install=os.geteuid() == 0, progress=_progress(pytestconfig))
    return installer.kafka_jars(_progress(pytestconfig))


def _progress(config: pytest.Config) -> Progress:
    """Shows the progress of an installation on the terminal, past pytest's capture."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    assert capture

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line)

    return show


@pytest.fixture(scope="session")
def ceph(ceph_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCeph]:
    """A Ceph whose data is in memory."""
    directory = tmp_path_factory.mktemp("ceph")
    with LocalCeph(directory, free_port(2), "memstore", gigabytes=4) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(kafka_packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A Kafka broker."""
    with LocalKafka(tmp_path_factory.mktemp("kafka"), free_port(2)) as server:
        yield server


@pytest.fixture
def bucket(ceph: LocalCeph) -> Settings:
    """Settings whose store is a new, empty bucket."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    minio_of(ceph).make_bucket(bucket_name=name)
    return Settings(
        store=f"{ceph.endpoint}/{name}",
        access_key=ceph.keys.access_key,
        secret_key=ceph.keys.secret_key,
    )


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    """An S3 server that is not Ceph."""
    with VersityGateway(tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@pytest.fixture
def gateway_bucket(gateway: VersityGateway) -> Settings:
    """Settings whose store is a new, empty bucket of versitygw."""
    settings = gateway.settings(f"test-{uuid.uuid4().hex[:12]}")
    open_objects(settings).ensure_bucket()
    return settings


@pytest.fixture
def topic(kafka: LocalKafka, request: pytest.FixtureRequest) -> str:
    """Name of a new, empty topic.

    It has 4 partitions, or N with ``@pytest.mark.parametrize("topic", [N], indirect=True)``.
    """
    name = f"test-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, getattr(request, "param", 4))]).values():
        made.result(30)
    return name


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start functions as processes, on a store that is a directory.

    ``serve("cutouts", DECODE_SECONDS=1)`` starts one; `probe` tells when it runs.
    """
    started: list[Process] = []

    def start(name: str, probe: str = "readiness", **env: object) -> Served:
        port = free_port()
        settings = {"STORE": f"file://{tmp_path}/store", "PORT": port, **env}
        process = Process(
            name,
            [sys.executable, "-m", "stampede", "serve", name],
            tmp_path / f"{name}.log",
            {f"STAMPEDE_{key}": str(value) for key, value in settings.items()},
        )
        process.start()
        started.append(process)
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: is_ready(url, probe), process)
        return Served(process, url, Settings(store=str(settings["STORE"])))

    yield start
    for process in started:
        process.stop()
