"""What merged packets take, what merging costs, and what it costs to read one packet of them.

Each object has about ten alerts in a month, one in a clear night. The packs of each night are
merged, then those of the month, as `compact` does it. It runs in this process, with a
store in memory: CPU times are those of all its threads.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from stampede.errors import Damaged
from stampede.events.cloudevents.envelope import Envelope
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers.packet_storer import store_packets
from stampede.store.compaction.packet_merge import Merge, PacketMerger
from stampede.store.compaction.packet_plan import WINDOW, due_merges
from stampede.store.objects.memory import MemoryObjects
from stampede.store.parquet import pages
from stampede.store.runs.schema import PACKETS
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival
from stampede_bench.ingestion.decode import batch_decoder, views_of_one_buffer
from stampede_bench.instruments.load import LONG_LSST_HISTORY, LSST_HISTORY
from stampede_bench.storage.settled_night import one_night
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Fields, Mix, Simulator
from stampede_simulator.sky import FIRST_NIGHT, MOST_NIGHTS

NIGHTS = 30  # of which half are clear
VISITS_APART = 2  # batches of a night, at least
BATCH = 200  # alerts in a pack at most
LOADS = ("lsst", LSST_HISTORY), ("lsst", LONG_LSST_HISTORY), ("ztf", 60)
PAGE = 1 << 20
SAMPLE = 300  # packets that are read
SMALLER = Bound("<=", 0.40, ratio=True)
CHEAP = Bound("<=", 5.0)


class Stored(NamedTuple):
    """What a store of packets takes: bytes, packs."""

    bytes: int
    packs: int


def measure(context: Context) -> Iterator[Figure]:
    """A month of each survey."""
    for survey, rows in LOADS:
        nights = month(survey, rows, context.scaled(60, 20, least=4))
        messages = sum(map(len, nights.values()))
        context.progress(f"storing and merging {messages:,} {survey.upper()} alerts of a month")
        yield from one_month(survey, nights)
    for survey, rows in LOADS[::2]:
        alerts = context.scaled(3000, 600, least=80)
        context.progress(f"storing and merging a night of {alerts:,} {survey.upper()} alerts")
        yield from one_night(survey, rows, alerts)


def month(survey: str, rows: int, objects: int) -> dict[int, list[SimulatedAlert]]:
    """An alert of each object of a field in each clear night of one window of merges."""
    lsst = survey == "lsst"
    fields = Fields.of_history(rows, objects) if lsst else Fields(objects)
    first = max(fields.first_night, rows // 2 if not lsst else 0)
    first += -(FIRST_NIGHT + first) % WINDOW  # where a window begins
    first -= 0 if first + NIGHTS <= MOST_NIGHTS else WINDOW
    fields = replace(fields, first_night=first, nights=first + NIGHTS)
    mix = Mix(lsst_share=float(lsst), solar_system=0.0, null_cutouts=0.0)
    nights: dict[int, dict[str, SimulatedAlert]] = defaultdict(dict)
    last = 0.0
    for alert in Simulator(1, fields, mix, keep_light_curves=False).alerts(NIGHTS * 9 * objects):
        time_of_alert = alert.points[0].mjd
        if time_of_alert < last - 1:  # of the next field
            break
        last = time_of_alert
        nights[int(last)].setdefault(alert.object_id, alert)
    return {night: list(alerts.values()) for night, alerts in nights.items()}


def one_month(survey: str, nights: dict[int, list[SimulatedAlert]]) -> Iterator[Figure]:
    """The figures of one survey."""
    objects = MemoryObjects()
    offset, ids = 0, [each.alert_id for alerts in nights.values() for each in alerts]
    for alerts in nights.values():
        size = min(BATCH, -(-len(alerts) // VISITS_APART))
        for first in range(0, len(alerts), size):
            batch = [alert.body for alert in alerts[first : first + size]]
            _store(objects, batch, offset)
            offset += len(batch)
    rows = np.mean([len(each.points) - 1 for alerts in nights.values() for each in alerts])
    each = offset / len({one.object_id for alerts in nights.values() for one in alerts})
    what = f"{offset:,} {survey.upper()} alerts, {each:.0f} an object in a month"
    subject = f"packets of {what}, {rows:.0f} history rows in the mean"
    before, read_before = _stored(objects), _read(objects, ids)
    kilobytes = before.bytes / offset / 1e3
    yield Figure(subject, "as stored", kilobytes, "KB/alert")

    night, cpu_night = _merge(objects)
    after_night = _stored(objects)
    rival = Rival("as stored", kilobytes)
    yield Figure(subject, "merged by night", after_night.bytes / offset / 1e3, "KB/alert", rival)
    whole, cpu_month = _merge(objects)
    after = _stored(objects)
    requirement = SMALLER if survey == "lsst" else None
    merged = after.bytes / offset / 1e3
    yield Figure(subject, "merged by month", merged, "KB/alert", rival, requirement)
    cpu = 1e3 * (cpu_night + cpu_month) / offset
    yield Figure(subject, "both merges and their proofs", cpu, "ms CPU/alert")
    read, written = (
        sum(getattr(done, name) for done in night + whole) / offset / 1e3
        for name in ("bytes_read", "bytes_written")
    )
    yield Figure(subject, "both merges read", read, "KB/alert")
    yield Figure(subject, "both merges write", written, "KB/alert")
    packs = Rival("as stored", 1e3 * before.packs / offset)
    yield Figure(subject, "packs", 1e3 * after.packs / offset, "per 1,000 alerts", packs)
    read_after = _read(objects, ids)
    rival = Rival("as stored", read_before.cpu)
    more = read_after.cpu - read_before.cpu
    yield Figure(subject, "a packet out of its page, more", more, "ms CPU", rival, CHEAP)
    most = Bound("<=", PAGE / 1e3)
    yield Figure(subject, "largest page", read_after.largest / 1e3, "KB", None, most)


def _store(objects: MemoryObjects, messages: Sequence[bytes], first: int) -> None:
    views = views_of_one_buffer(messages)
    groups = batch_decoder().detections(views).groups
    positions = [Position("bench@0", 0, first + number) for number in range(len(messages))]
    batch = Batch(views, positions, envelopes=[Envelope(record="")] * len(messages))
    store_packets(Table(objects, PACKETS, threads=1), batch, groups)


def _stored(objects: MemoryObjects) -> Stored:
    sizes = [info.size for info in objects.list("packets/")]
    return Stored(sum(sizes), len(sizes))


def _merge(objects: MemoryObjects) -> tuple[list[Merge], float]:
    """All merges that are due now, then the deletion of what was merged; and their CPU seconds."""
    begin = time.process_time()
    done: list[Merge] = []
    packs = list(objects.list("packets/"))
    for _ in range(2):
        table = Table(objects, PACKETS, threads=1)
        merger = PacketMerger(objects, table, timedelta())
        try:
            table.refresh()
            for sources in due_merges(packs, 1 << 30, WINDOW):
                done.append(merger.merge(sources))
        finally:
            merger.close()
            table.close()
    return done, time.process_time() - begin


class Reads(NamedTuple):
    """What it takes to read one packet: CPU milliseconds; and the bytes of the largest page."""

    cpu: float
    largest: int


def _read(objects: MemoryObjects, alert_ids: Sequence[int]) -> Reads:
    """Read some packets, each by its row and its page."""
    table = Table(objects, PACKETS, threads=1)
    table.refresh()
    places = table.lookup(alert_ids).to_pylist()
    table.close()
    chosen = np.random.default_rng(1).permutation(len(places))[:SAMPLE]
    sizes = [place["length"] for place in places]
    begin = time.process_time()
    for place in map(places.__getitem__, chosen):
        page = objects.get(place["pack"], place["offset"], place["length"])
        if place["row"] >= len(pages.values(page)):
            raise Damaged("a page lacks a packet")
    return Reads(1e3 * (time.process_time() - begin) / len(chosen), max(sizes))
