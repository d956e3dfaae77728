"""The store's keys are exchanged while alerts are stored and read; no process is started anew."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.table import Table
from stampede_local.ceph import LocalCeph
from tests.support.alerts import made_alerts
from tests.support.mounted_secret import s3_files
from tests.support.served import Served
from tests.support.store.rotated_user import RotatedUser
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration
TABLES = {"cutouts": CUTOUTS, "lightcurves": DETECTIONS}


def alert(offset: int) -> bytes:
    return made_alerts.ztf_alert(offset + 1)


class System:
    """The functions that store alerts, and `read`, under a load.

    Attributes
    ----------
    answers
        How often each status was answered, by function.
    sent
        How many alerts each function has stored.
    """

    def __init__(self, user: RotatedUser, serve: Callable[..., Served]) -> None:
        self.user = user
        site = {"STORE": user.settings.store, "KEYS": user.settings.keys}
        self.functions = {name: serve(name, **site, WORKERS=2) for name in TABLES}
        self.read = serve("read", **site)
        self.answers: dict[str, Counter[int]] = {name: Counter() for name in (*TABLES, "read")}
        self.sent = dict.fromkeys(TABLES, 0)
        self._stop = threading.Event()

    def send(self, name: str) -> None:
        """Store one more alert; send it again as a source does, until the function has it."""
        offset, deadline = self.sent[name], time.monotonic() + 120
        while True:
            status = self.functions[name].post(offset, alert(offset)).status
            self.answers[name][status] += 1
            if status != 503:
                break
            assert time.monotonic() < deadline
            time.sleep(0.2)
        self.sent[name] += 1

    def cutout(self, offset: int) -> int:
        """Read a cutout of an alert; the status."""
        url = f"{self.read.url}/v1/alerts/{offset + 1}/cutouts/science"
        return self.read.http.request("GET", url).status

    @contextmanager
    def load(self) -> Iterator[None]:
        """Send and read all the time; at the end every event has its response."""
        for name in TABLES:
            self.send(name)
        eventually(lambda: self.cutout(0) == 200)

        def repeat(one: Callable[[], None]) -> None:
            while not self._stop.wait(0.05):
                one()

        def read() -> None:
            self.answers["read"][self.cutout(0)] += 1

        with ThreadPoolExecutor(4) as pool:
            load: list[Callable[[], None]] = [partial(self.send, name) for name in TABLES]
            running = [pool.submit(repeat, one) for one in (*load, read, read)]
            try:
                yield
            finally:
                self._stop.set()
            for each in running:
                each.result()

    def await_more(self, count: int = 8) -> None:
        """Wait for so many more responses of each function."""
        wanted = {name: counted.total() + count for name, counted in self.answers.items()}
        eventually(lambda: all(self.answers[name].total() >= wanted[name] for name in wanted))

    def processes(self) -> set[tuple[int, float]]:
        """Pid and start of each function and each of its workers."""
        roots = [served.process.pid for served in (*self.functions.values(), self.read)]
        parents = [psutil.Process(pid) for pid in roots]
        children = [child for each in parents for child in each.children(recursive=True)]
        return {(each.pid, each.create_time()) for each in (*parents, *children)}

    def assert_complete(self) -> None:
        """Every alert that was sent is in both tables, and is read."""
        for name, spec in TABLES.items():
            coverage = Table(open_objects(self.user.settings), spec).coverage()
            assert coverage.intervals("alerts", 0) == [(0, self.sent[name])]
        offsets = range(self.sent["cutouts"])
        eventually(lambda: all(self.cutout(offset) == 200 for offset in offsets))

    def logs_name_no_key(self) -> bool:
        """Whether each process says that it read keys again, and none says which."""
        logs = [served.process.tail(1000) for served in (*self.functions.values(), self.read)]
        assert not [log for log in logs if self.user.keys.secret_key in log]
        return all("keys were read again" in log for log in logs)


@pytest.fixture
def system(ceph: LocalCeph, serve, tmp_path: Path, request: pytest.FixtureRequest) -> System:
    name = request.node.name.removeprefix("test_").replace("_", "-")[:30].strip("-")
    return System(RotatedUser(ceph, name, tmp_path / "keys"), serve)


def test_new_keys_before_old_are_removed(system: System) -> None:
    """No event and no read fails."""
    with system.load():
        system.await_more()
        processes = system.processes()
        old, new = system.user.keys, system.user.make_key()
        system.user.secret.change(s3_files(*new))
        system.await_more()
        system.user.remove_key(old)
        eventually(system.logs_name_no_key)
        system.await_more()
    for name, counted in system.answers.items():
        assert counted.keys() == {200 if name == "read" else 204}
    assert system.processes() == processes
    system.assert_complete()


def test_old_keys_removed_too_early(system: System) -> None:
    """Events wait, and are sent again; reads may fail until the files have the new keys."""
    with system.load():
        system.await_more()
        processes = system.processes()
        old, new = system.user.keys, system.user.make_key()
        system.user.remove_key(old)
        eventually(lambda: all(system.answers[name][503] for name in TABLES))
        system.user.secret.change(s3_files(*new))
        eventually(system.logs_name_no_key)
        system.await_more()
    for name in TABLES:
        assert system.answers[name].keys() == {204, 503}, "no dead letter"
    assert system.answers["read"].keys() <= {200, 503}
    assert system.processes() == processes
    system.assert_complete()
