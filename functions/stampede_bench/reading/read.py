"""Reading by id over HTTP: one item cold and warm, and beside large queries.

The client runs on the same cores, in threads with kept-alive connections. The time of a cutout is
compared with that of a bare ranged GET of the same bytes by obstore from the same threads: the
store's own latency as a fast client meets it, which is the lower limit.
"""

import asyncio
import gzip
import multiprocessing
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from stampede.alerts.columns import CUTOUT, KINDS
from stampede.config.settings import Settings
from stampede.ingest.send import alert_sinks, ingest
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.runs.schema import CUTOUTS
from stampede.store.s3.bucket import S3Objects
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival, percentile
from stampede_bench.growth.first_answer import first_answers
from stampede_bench.instruments import load
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.crowd import crowd
from stampede_bench.instruments.http_load import bulk, requests, timed
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import pids, servers, system
from stampede_bench.reading.images import seconds
from stampede_bench.reading.read_by_id import ById, bare_gets, curve, cutout, picked
from stampede_local.system import System
from stampede_local.up import send

REQUIREMENT_BESIDE = Bound("<=", 200.0)  # p99 of a small query while large ones run
# Each of two queries of 1,000 ids, in units of the bare GETs of a client: 2,000 cutouts/s on a host
# with 500 GETs/s. Hosts so far, slow ones too, had 4.6 to 5.0.
REQUIREMENT_ITEMS = Bound(">=", 4.0, ratio=True)
REQUIREMENT_OF_MANY, TARGET_ITEMS = Bound(">=", 600.0), Bound(">=", 3000.0)  # cutouts a second
CROWD = 1000  # clients at once
NONE = Bound("<=", 0.0)
COLD = Bound("<=", 500.0)
BULK_IDS, MANY_IDS = 1000, 30_000
FIRST_ID = 9_000_000_000  # of MANY_IDS
HISTORY = 50  # rows
IMAGE = 15_000  # bytes
PACK, PACKS_AT_ONCE = 500, 4  # alerts in a pack; packs


def measure(context: Context) -> Iterator[Figure]:
    """Store alerts of both surveys, then read them."""
    count = context.scaled(3000, 1500, least=30)
    loads = [
        load.simulated(survey, count // 2, HISTORY, objects=max(10, count // 4))
        for survey in ("lsst", "ztf")
    ]
    with servers(context, kafka=False) as running:
        settings = running.settings("bench-read")
        with system(context, "read", settings, ()) as live:
            context.progress(f"storing {count:,} alerts")
            for alerts in loads:
                store(live, settings, context.scratch / alerts.survey, alerts)
            send("compact", live.urls["compact"], {})
            url = live.urls["read"]
            reader = pids([live.processes["read"]])
            ids = [pair for alerts in loads for pair in alerts.ids]
            yield from cold(url, ids)
            alert_id, object_id = ids[len(ids) // 3]
            paths = {"a cutout": cutout(alert_id), "a light curve": curve(object_id)}
            by_id = ById(context, settings, url, ids, running.pids | reader)
            by_id.turns()
            yield from first_answers(context, settings, paths)
            by_id.turns()
            alert_ids = [one for one, _ in ids]
            yield from by_a_crowd(context, url, picked(alert_ids, len(ids)))
            alone = bare_rate(settings, ids, context.scaled(1000, 300, least=10))
            many = picked(alert_ids, min(BULK_IDS, len(ids)))
            yield from beside_bulk(context, url, ids, many, alone)
            by_id.turns()
            yield from by_id.figures()
            if not context.quick:
                context.progress(f"storing {MANY_IDS:,} alerts of noise")
                fill(open_bucket(settings), MANY_IDS)
                time.sleep(2 * settings.refresh_seconds)
                many = list(range(FIRST_ID, FIRST_ID + MANY_IDS))
                yield from beside_bulk(context, url, ids, many, alone)


def store(live: System, settings: Settings, folder: Path, alerts: Load) -> None:
    """Store alerts with the code of `stampede ingest`."""
    folder.mkdir()
    for number, message in enumerate(alerts.messages):
        (folder / f"{number:06}.avro").write_bytes(message)

    async def run() -> None:
        sinks, stop = alert_sinks(live.urls), asyncio.Event()
        await ingest([folder], sinks, open_bucket(settings), settings, stop, lambda _: None)

    asyncio.run(run())


def cold(url: str, ids: Sequence[tuple[int, str]]) -> Iterator[Figure]:
    """The first requests to a new process."""
    alert_id, object_id = ids[len(ids) // 3]
    for name, path in (("a cutout", cutout(alert_id)), ("a light curve", curve(object_id))):
        (first,) = requests(url, [path], 1).milliseconds
        yield Figure("cold: the first request of a process", name, first, "ms", None, COLD)


def by_a_crowd(context: Context, url: str, alert_ids: Sequence[int]) -> Iterator[Figure]:
    """Cutouts for many clients at once, each with a kept-alive connection."""
    clients = context.scaled(CROWD, CROWD, least=20)
    subject = f"a cutout by id, warm, for {clients:,} clients with kept-alive connections"
    asked = [cutout(alert_ids[number % len(alert_ids)]) for number in range(5 * clients)]
    context.progress(f"{subject}: {len(asked):,}")
    found = crowd(url, asked, clients)
    for share in (50, 99):
        yield Figure(subject, f"p{share}", percentile(found.milliseconds, share), "ms")
    yield Figure(subject, "rate", len(found.milliseconds) / found.seconds, "/s")
    yield Figure(subject, "failures", found.failures, "", None, NONE)


def bare_rate(settings: Settings, ids: Sequence[tuple[int, str]], count: int) -> float:
    """Cutouts a second that each of two clients gets directly from the store, one by one."""
    chosen = picked([alert_id for alert_id, _ in ids], count)
    bare = bare_gets(settings, chosen)
    return len(chosen) / timed(lambda: bare, chosen, 2).seconds / 2


def fill(bucket: S3Objects, alerts: int) -> None:
    """Store cutouts of this many alerts: noise, as large as real cutouts."""
    noise = random.Random(1)
    images = [gzip.compress(noise.randbytes(IMAGE), 1, mtime=0) for _ in range(97)]
    table = Table(bucket, CUTOUTS)

    def store(start: int) -> None:
        rows = [
            {
                "alert_id": FIRST_ID + number,
                "survey": "ztf",
                "kind": kind,
                "object_id": f"ZTF{number}",
                "mjd": 61000.0,
                "band": "r",
                "ra": 10.0,
                "dec": -5.0,
                "fits": images[(len(KINDS) * number + index) % len(images)],
            }
            for number in range(start, min(start + PACK, alerts))
            for index, kind in enumerate(KINDS)
        ]
        pack = write_pack(pa.Table.from_pylist(rows, CUTOUT), Coverage())
        bucket.put(pack.key, memoryview(pack.data))
        table.append(pack.locations, Coverage())

    seconds(store, range(0, alerts, PACK), PACKS_AT_ONCE)
    table.close()


def beside_bulk(
    context: Context,
    url: str,
    ids: Sequence[tuple[int, str]],
    many: Sequence[int],
    bare: float,
) -> Iterator[Figure]:
    """Small queries while two large ones, of `many` alerts each, are always under way."""
    small = picked([alert_id for alert_id, _ in ids], context.scaled(1000, 300, least=10))
    context.progress(f"two queries of {len(many):,} ids each, beside {len(small):,} small ones")
    alone = requests(url, [cutout(alert_id) for alert_id in small], 1)
    done = threading.Event()
    rates: list[float] = []

    # Two processes, like two other users: threads here would slow the small queries down.
    others = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))

    def large() -> None:
        """At least one, and no further one once the small queries are answered."""
        while True:
            rates.append(len(many) / others.submit(bulk, url, many).result())
            if done.is_set():
                return

    with others, ThreadPoolExecutor(2) as pool:
        list(others.map(abs, range(2)))  # starts them
        queries = [pool.submit(large) for _ in range(2)]
        try:
            beside = requests(url, [cutout(alert_id) for alert_id in small], 1)
        finally:
            done.set()
        for query in queries:
            query.result()
    subject = f"two large queries of {len(many):,} ids at once"
    one_by_one = Rival("one id after the other", len(small) / alone.seconds)
    rate = percentile(rates, 50)
    yield Figure(subject, "of each: alerts", rate, "ids/s", one_by_one)
    by_hand = Rival("bare ranged GETs of each of two clients", bare)
    cutouts = rate * len(KINDS)
    required_items = REQUIREMENT_ITEMS if len(many) <= BULK_IDS else REQUIREMENT_OF_MANY
    yield Figure(
        subject, "of each: cutouts", cutouts, "/s", by_hand, required_items, None, TARGET_ITEMS
    )
    for share in (50, 99):
        rival = Rival("without the large ones", percentile(alone.milliseconds, share))
        value = percentile(beside.milliseconds, share)
        requirement = REQUIREMENT_BESIDE if share == 99 else None
        yield Figure(
            subject, f"a cutout by id meanwhile, p{share}", value, "ms", rival, requirement
        )
