"""An erasure-coded pool beside pools of copies: bytes on disks and CPU time, for objects and packs.

Three OSDs of one machine, with a pool of each kind for the gateway's data: 2+1, which survives the
loss of one OSD, two copies, which do so too, and three copies. A cutout is an object, or many are a
pack. Bytes are those that BlueStore has allocated: what it notes of an object in RocksDB is not
counted. Everything but the data, as the bucket's index, has one copy in each case.
"""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from stampede.store.s3.bucket import S3Objects
from stampede_bench.figures import Context, Figure, Rival, over_rounds
from stampede_bench.instruments.bucket import clear
from stampede_bench.instruments.cpu import Cpu
from stampede_bench.instruments.servers import Servers, servers
from stampede_bench.reading.images import CUTOUT_BYTES, KB, noise
from stampede_bench.storage.space import erasure_coded
from stampede_local.ceph import USER, LocalCeph
from stampede_local.process import wait_until

DATA, PARITY = 2, 1
UNIT = 4 << 10  # that BlueStore allocates, since Pacific
SIZES = (CUTOUT_BYTES, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
ALERT_BYTES = 3 * CUTOUT_BYTES  # that a GET reads of a pack
_MB = 1e6


class Pool(NamedTuple):
    """A pool: the name of its placement, what it is called, its copies; 0 if it has chunks."""

    name: str
    title: str
    copies: int

    @property
    def data(self) -> str:
        """The pool of the objects' data, as Ceph names it."""
        return f"{self.name}.data"


CODED = Pool("ec", f"erasure coding {DATA}+{PARITY}", 0)
COPIES = (Pool("two", "two copies", 2), Pool("three", "three copies", 3))
OSDS = max(DATA + PARITY, *(pool.copies for pool in COPIES))


class Cost(NamedTuple):
    """Bytes on disks for each byte; ms of CPU time of a PUT and a GET, by the OSDs and by all."""

    bytes: float
    put: tuple[float, float]
    get: tuple[float, float]


def measure(context: Context) -> Iterator[Figure]:
    """Every size on each pool in turn."""
    with servers(context, kafka=False, osds=OSDS) as running:
        buckets = make(running)
        for size in SIZES:
            context.progress(f"objects of {size / _MB:,.3g} MB")
            rounds = []
            for number in range(context.scaled(5, 3)):
                costs = {
                    pool: cost(context, running.ceph, bucket, size, number)
                    for pool, bucket in buckets.items()
                }
                rounds.append([*figures(size, costs)])
            yield from over_rounds(rounds)
            for bucket in buckets.values():
                clear(bucket)


def make(running: Servers) -> dict[Pool, S3Objects]:
    """A pool of each kind, and a bucket in each."""
    ceph = running.ceph
    pools = (CODED, *COPIES)
    for pool in pools:
        for command in pool_commands(pool):
            ceph.ceph(*command)
        for command in placement_commands(pool):
            ceph.radosgw_admin(*command)
    ceph.gateway.stop()  # it reads placements when it starts
    ceph.gateway.start()
    wait_until(ceph.answers, ceph.gateway)
    buckets = {}
    for pool in pools:
        # A bucket goes where its owner's buckets go when it is made.
        ceph.radosgw_admin("user", "modify", f"--uid={USER}", f"--placement-id={pool.name}")
        buckets[pool] = running.bucket(f"bench-{pool.name}")
    return buckets


def pool_commands(pool: Pool) -> list[tuple[str, ...]]:
    """Arguments of `ceph` that make a pool."""
    data = pool.data
    if pool.copies:
        return [
            ("osd", "pool", "create", data, "8", "8", "replicated"),
            ("osd", "pool", "set", data, "size", str(pool.copies)),
        ]
    chunks = f"k={DATA}", f"m={PARITY}", "crush-failure-domain=osd"
    return [
        ("osd", "erasure-code-profile", "set", pool.name, *chunks),
        ("osd", "pool", "create", data, "8", "8", "erasure", pool.name),
    ]


def placement_commands(pool: Pool) -> list[tuple[str, ...]]:
    """Arguments of `radosgw-admin` after which buckets may lie in a pool."""
    placement = "placement", "add", f"--placement-id={pool.name}"
    pools = (
        f"--data-pool={pool.data}",
        "--index-pool=default.rgw.buckets.index",
        "--data-extra-pool=default.rgw.buckets.non-ec",  # chunks have no omap, uploads need it
    )
    return [
        ("zonegroup", *placement, "--rgw-zonegroup=default"),
        ("zone", *placement, "--rgw-zone=default", *pools),
    ]


def allocated(dump: bytes | str) -> int:
    """The bytes that an OSD has allocated, of what it answers to ``perf dump``."""
    counters: dict[str, int] = json.loads(dump)["bluestore"]
    # Ceph 18 has dropped the prefix.
    return counters["bluestore_allocated" if "bluestore_allocated" in counters else "allocated"]


def expected(size: int, pool: Pool) -> int:
    """The bytes that an object should take on the disks of a pool."""
    if pool.copies:
        return pool.copies * -(-size // UNIT) * UNIT
    return erasure_coded([size], UNIT, DATA, PARITY)


def cost(context: Context, ceph: LocalCeph, bucket: S3Objects, size: int, number: int) -> Cost:
    """Write objects of a size, and read an alert of each."""
    count = max(context.scaled(2, 1), context.scaled(30_000, 10_000) * KB // size)
    keys = [f"{size}/{number}/{index}" for index in range(count)]
    part = min(size, ALERT_BYTES)
    before = on_disks(ceph)
    put = cpu_of(ceph, count, lambda index: bucket.put(keys[index], noise(size, index)))
    taken = on_disks(ceph) - before
    reads = context.scaled(300, 100)
    # Alerts all over a pack: at every 97th byte of a thousand.
    step = (size - part) // 1000
    get = cpu_of(
        ceph,
        reads,
        lambda index: bucket.get(keys[index % count], index * 97 % 1000 * step, part),
    )
    return Cost(taken / (count * size), put, get)


def on_disks(ceph: LocalCeph) -> int:
    """The bytes that all OSDs have allocated."""
    sockets = [ceph.directory / "run" / f"osd.{number}.asok" for number in range(len(ceph.osds))]
    return sum(allocated(asked(path, "perf dump")) for path in sockets)


def asked(path: Path, command: str) -> bytes:
    """What a daemon answers at its admin socket: the program `ceph` takes a second to start."""
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.connect(str(path))
        daemon.sendall(json.dumps({"prefix": command}).encode() + b"\0")
        answer = daemon.makefile("rb")
        return answer.read(int.from_bytes(answer.read(4), "big"))


def cpu_of(ceph: LocalCeph, count: int, act: Callable[[int], object]) -> tuple[float, float]:
    """Milliseconds of CPU time of an action: of the OSDs, and of the OSDs and the gateway."""
    watched = {f"osd {number}": osd.pid for number, osd in enumerate(ceph.osds)}
    cpu = Cpu({name: pid for name, pid in (watched | {"rgw": ceph.gateway.pid}).items() if pid})
    for index in range(count):
        act(index)
    spent = cpu.seconds()
    osds = sum(seconds for name, seconds in spent.items() if name != "rgw")
    return 1e3 * osds / count, 1e3 * (osds + spent["rgw"]) / count


def figures(size: int, costs: dict[Pool, Cost]) -> Iterator[Figure]:
    """The figures of a size: erasure coding beside each number of copies."""
    subject = f"objects of {size / _MB:,.3g} MB on {OSDS} OSDs"
    part = min(size, ALERT_BYTES) // KB
    coded = costs[CODED]
    for pool, found in costs.items():
        computed = Rival("computed", expected(size, pool) / size)
        yield Figure(subject, f"bytes on disks, {pool.title}", found.bytes, "bytes/byte", computed)
    for pool in COPIES:
        other = costs[pool]
        for name, own, theirs in (
            ("CPU of a PUT, of the OSDs", coded.put[0], other.put[0]),
            ("CPU of a PUT, of Ceph", coded.put[1], other.put[1]),
            (f"CPU of a GET of {part} KB, of Ceph", coded.get[1], other.get[1]),
        ):
            yield Figure(subject, f"{name}, {CODED.title}", own, "ms", Rival(pool.title, theirs))
