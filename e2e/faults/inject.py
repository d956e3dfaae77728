"""The faults of a campaign: what is done to processes, stores, sockets, clocks and Kafka."""

import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import psutil

from e2e.faults.proxy import FAULTS, Proxy
from e2e.stampede_up import StampedeUp
from stampede.errors import StampedeError
from stampede.store.compaction import compact
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.schema import ALL_TABLES
from stampede.store.tables import Table

EVENTS = ("notifications", "broker", "thumbnails", "replicate", "reconcile")
ALERTS = ("cutouts", "lightcurves", "deadletters", "compact", "read", "source")
SERVERS = ("radosgw", "ceph-osd", "second-radosgw", "kafka")
STOP_SECONDS = (4.0, 30.0)  # some stops are longer than every grace
SETTLED_SECONDS = 60  # only objects of that age are damaged: both sites have them


class Injector:
    """Does faults to a running system. Each method is a kind of fault."""

    def __init__(
        self, chance: random.Random, up: StampedeUp, proxies: list[Proxy], sites: list[Objects]
    ) -> None:
        self._chance, self._up = chance, up
        self._proxies, self._sites = proxies, sites
        self._stopped: dict[int, psutil.Process] = {}
        self._threads: list[threading.Thread] = []
        self.done: Counter[str] = Counter()

    def one(self) -> str:
        """Do one fault; its name."""
        kinds: list[tuple[Callable[[], str | None], int]] = [
            (self.kill, 6),
            (self.stop, 4),
            (self.request_fault, 10),
            (self.hold_sockets, 2),
            (self.damage, 4),
            (self.jump_of_the_clock, 2),
        ]
        ways, weights = zip(*kinds, strict=True)
        while True:
            name = self._chance.choices(ways, weights)[0]()
            if name:
                self.done[name.partition(" ")[0]] += 1
                return name

    def total(self) -> int:
        """How many faults were done."""
        return self.done.total()

    def end(self) -> None:
        """Undo what lasts: stopped processes go on, requests are left alone."""
        for proxy in self._proxies:
            proxy.be_kind()
        for thread in self._threads:
            thread.join()
        for process in list(self._stopped.values()):
            self._go_on(process)

    def kill(self) -> str | None:
        """SIGKILL to a process of the system."""
        # Ceph's and Kafka's processes take longest to come back.
        name = self._chance.choice((*EVENTS, *ALERTS, *EVENTS, *ALERTS, *SERVERS))
        process = self._process(name)
        if process is None:
            return None
        with suppress(psutil.NoSuchProcess):
            process.kill()
        return f"kill {name}"

    def stop(self) -> str | None:
        """SIGSTOP, and SIGCONT after seconds."""
        name = self._chance.choice((*EVENTS, *ALERTS, "radosgw", "kafka"))
        process = self._process(name)
        if process is None or process.pid in self._stopped:
            return None
        with suppress(psutil.NoSuchProcess):
            process.suspend()
        self._stopped[process.pid] = process
        seconds = self._chance.uniform(*STOP_SECONDS)
        self._later(seconds, lambda: self._go_on(process))
        return f"stop {name} for {seconds:.0f} s"

    def request_fault(self) -> str:
        """The next requests of S3 fail, come late, come twice, or answer wrongly."""
        site = self._chance.choices((0, 1), (3, 1))[0]
        fault = self._chance.choice(list(FAULTS))
        requests = self._chance.randint(1, 4)
        self._proxies[site].inject(fault, requests)
        return f"s3-{fault} for {requests} requests of site {site + 1}"

    def hold_sockets(self) -> str:
        """Connections that send half a request and then nothing."""
        url = urlsplit(self._up.url)
        held = []
        for _ in range(20):
            with suppress(OSError):
                connection = socket.create_connection((url.hostname or "", url.port or 0), 2)
                connection.sendall(
                    b"POST /v1/cutouts HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n"
                )
                held.append(connection)
        self._later(20, lambda: [connection.close() for connection in held])
        return f"sockets held: {len(held)}"

    def damage(self) -> str | None:
        """A bit of an object is flipped, or the object is cut or deleted, at one of two sites."""
        prefix = self._chance.choice(("tables/", "tables/", "packs/"))
        try:
            here, there = ({info.key: info for info in site.list(prefix)} for site in self._sites)
            settled = datetime.now(UTC) - timedelta(seconds=SETTLED_SECONDS)
            both = [
                info
                for key, info in sorted(here.items())
                if key in there and there[key].size == info.size and info.modified < settled
            ]
            if not both:
                return None
            info, site = self._chance.choice(both), self._chance.choice(self._sites)
            return self._damage(info, site)
        except StampedeError:
            return None

    def jump_of_the_clock(self) -> str | None:
        """A compactor whose clock is years wrong makes a pass."""
        years = self._chance.choice((-10, -1, 1, 10))
        now = datetime.now(UTC) + timedelta(days=365 * years)
        spec = self._chance.choice(list(ALL_TABLES.values()))
        table = Table(self._sites[0], spec)
        try:
            compact(table, now, fanout=4, grace=timedelta(seconds=20))
        except StampedeError:
            return None
        finally:
            table.close()
        return f"clock {years:+} years in a compactor of {spec.name}"

    def _damage(self, info: ObjectInfo, site: Objects) -> str | None:
        data = bytearray(site.get(info.key))
        how = self._chance.choice(("flip", "cut", "delete"))
        if how == "delete":
            site.delete(info.key)
        else:
            if how == "flip":
                bit = self._chance.randrange(8 * len(data))
                data[bit // 8] ^= 1 << bit % 8
            else:
                del data[self._chance.randrange(len(data)) :]
            site.put(info.key, bytes(data))
        return f"{how} {info.key} at site {self._sites.index(site) + 1}"

    def _process(self, name: str) -> psutil.Process | None:
        found = self._up.processes(name)
        return self._chance.choice(found) if found else None

    def _go_on(self, process: psutil.Process) -> None:
        self._stopped.pop(process.pid, None)
        with suppress(psutil.NoSuchProcess):
            process.resume()

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        def act() -> None:
            time.sleep(seconds)
            action()

        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        self._threads.append(thread)


_SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
