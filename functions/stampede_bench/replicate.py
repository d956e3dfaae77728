"""To a second site far away: what a long round trip leaves of the rate of a short one.

The second site is behind a `link`, and `replicate` copies an object for each event, beside the
first site (push: it writes across the link) or beside the second (pull: it reads across it). Both
sites keep their data in memory, so it is the copying that is measured and not a disk.

A link that limits no bandwidth leaves out what TCP does with one that does: a single connection
over 150 ms carries at most its window, with Linux's defaults (``tcp_wmem``, ``tcp_rmem``) about
25 to 40 MB/s. Copies under way are as many connections.
"""

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from stampede.errors import Overloaded, StampedeError
from stampede.events.s3_events import stored_event
from stampede.functions.replicate import Replicate
from stampede.settings import Settings
from stampede.store.address import StoreAddress
from stampede.store.open import first_site
from stampede.store.runs import digest
from stampede.store.s3 import S3Objects
from stampede_bench.figures import Context, Figure, Must, Rival, over_rounds
from stampede_bench.link import link
from stampede_bench.servers import empty, objects
from stampede_local import installer
from stampede_local.ceph import LocalCeph
from stampede_local.process import free_port

MUST, AIM = Must(">=", 0.8, ratio=True), Must(">=", 0.95, ratio=True)
ROUND_TRIPS = (0, 110, 150)  # ms
PACK = 13_000_000  # bytes, of 300 LSST alerts
SMALL = (14_000, 180_000, 2_000_000)  # what is stored with a pack: runs, alerts as sent
GIGABYTES = 6


def measure(context: Context) -> Iterator[Figure]:
    """Each direction and scheme, at each distance in turn, several rounds."""
    installer.ensure(installer.CEPH, context.install, context.say)
    trips = (0, 150) if context.quick else ROUND_TRIPS
    with ExitStack() as stack:
        near, far = (
            Site(context.scratch / name, free_port(2), "memstore", GIGABYTES)
            for name in ("near", "far")
        )
        for site in (near, far):
            stack.enter_context(site)
        links = {
            (scheme, trip): stack.enter_context(link(context.scratch, port, trip))
            for scheme, port in (("http", far.port), ("https", far.tls_port))
            for trip in trips
        }
        for direction, source, target in (("push", near, far), ("pull", far, near)):
            first, second = (objects(site.settings("http", site.port)) for site in (source, target))
            keys = fill(first, context.some(80, 30))
            second.ensure_bucket()
            for scheme in ("http", "https"):
                rounds = []
                for _ in range(context.some(3, 1)):
                    rates = {}
                    for trip in trips:
                        here = near.settings("http", near.port)
                        there = far.settings(scheme, links[scheme, trip])
                        ends = (here, there) if direction == "push" else (there, here)
                        rates[trip] = copied(joined(*ends), keys, second)
                    subject = f"{direction}, {scheme.upper()}"
                    context.say(
                        f"{subject}: "
                        + ", ".join(
                            f"{mbs:.0f} MB/s at {trip} ms" for trip, (mbs, _) in rates.items()
                        )
                    )
                    rounds.append(list(figures(subject, rates)))
                yield from over_rounds(rounds)
            empty(first)


def figures(subject: str, rates: dict[int, tuple[float, float]]) -> Iterator[Figure]:
    """The rates of one round, beside that without a distance."""
    none, *far = rates
    yield Figure(subject, f"{none} ms", rates[none][0], "MB/s")
    for trip in far:
        rival = Rival(f"{none} ms", rates[none][0])
        yield Figure(subject, f"{trip} ms", rates[trip][0], "MB/s", rival, MUST, None, AIM)
    for trip, (_, cores) in rates.items():
        yield Figure(subject, f"cores that copy, {trip} ms", cores, "cores")


def fill(bucket: S3Objects, packs: int) -> list[str]:
    """Store packs and what comes with each; the names, in the order of their events."""
    keys = []
    bucket.ensure_bucket()
    for _ in range(packs):
        for folder, size in zip(("packs/61000", *["alerts/lsst"] * 3), (PACK, *SMALL), strict=True):
            data = os.urandom(size)
            name = digest(data)
            keys.append(f"{folder}/{name}.parquet")
            bucket.put(keys[-1], data)
    return keys


def copied(settings: Settings, keys: Sequence[str], target: S3Objects) -> tuple[float, float]:
    """MB/s and cores of copying all that; `target`, without a link, is then emptied."""
    function = Replicate(settings)

    async def run() -> None:
        coming, stop = iter(keys), object()

        async def work() -> None:
            while (key := next(coming, stop)) is not stop:
                await deliver(function, str(key))

        await asyncio.gather(*(work() for _ in range(2 * settings.copies)))

    begin, spent = time.monotonic(), time.process_time()
    asyncio.run(run())
    seconds = time.monotonic() - begin
    cores = (time.process_time() - spent) / seconds
    function.close()
    found = list(target.list(""))
    if {info.key for info in found} != set(keys):
        raise StampedeError(f"{len(found)} of {len(keys)} objects were copied")
    empty(target)
    return sum(info.size for info in found) / seconds / 1e6, cores


async def deliver(function: Replicate, key: str) -> None:
    """Have one object copied, as the event of it does."""
    event = stored_event("stampede", "us-east-1", key)
    while True:
        try:
            return await function.handle(event)
        except Overloaded:
            await asyncio.sleep(0.05)


def joined(source: Settings, target: Settings) -> Settings:
    """Those of a function that copies from one to the other."""
    return source.model_copy(update=first_site(target).as_second_site())


class Site(LocalCeph):
    """A Ceph whose gateway speaks HTTPS too, with a certificate of its own."""

    tls_port = 0

    def settings(self, scheme: str, port: int) -> Settings:
        """Those to reach its bucket by a port, a link's perhaps."""
        address = StoreAddress(
            f"{scheme}://127.0.0.1:{port}/bench",
            self.access_key,
            self.secret_key,
            ca_file=self._certificate if scheme == "https" else None,
        )
        return Settings().model_copy(update=address.as_first_site())

    @property
    def _certificate(self) -> Path:
        return self.directory.with_suffix(".pem")

    def _configure(self, identity: dict[str, str]) -> None:
        super()._configure(identity)
        self.tls_port = self.tls_port or free_port()
        key = self._certificate.with_suffix(".key")
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
                *("-subj", "/CN=far", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", str(key), "-out", str(self._certificate)),
            ],
            check=True,
            capture_output=True,
        )
        plain = f"endpoint=127.0.0.1:{self.port}"
        tls = f"ssl_endpoint=127.0.0.1:{self.tls_port} ssl_certificate={self._certificate}"
        text = self._config.read_text().replace(plain, f"{plain} {tls} ssl_private_key={key}")
        # What a round deleted must be gone before the next ones fill the memory: a gigabyte each.
        text, found = re.subn(r"(rgw_gc_(?:obj_min_wait|processor_period)) = \d+", r"\1 = 3", text)
        assert found == 2
        self._config.write_text(text)
