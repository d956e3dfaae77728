"""What packets add to `lightcurves`: CPU time by stage, and bytes stored."""

from collections.abc import Iterator

from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers.packet_storer import store_packets
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.raw_alerts import write_raw
from stampede.store.runs.schema import DETECTIONS, PACKETS
from stampede.store.tables.table import Table
from stampede_bench.figures import Context, Figure, Must, Rival
from stampede_bench.ingestion.decode import (
    UNIT,
    batch_decoder,
    each_load,
    per_alert,
    run_of,
    views_of_one_buffer,
)
from stampede_bench.instruments import load
from stampede_bench.instruments.load import Load
from stampede_bench.storage.checksums import INGEST_MS

MUST = Must("<=", 0.1, ratio=True)


def measure(context: Context) -> Iterator[Figure]:
    """A batch of each survey's alerts: simulated ones, and real ones if there are any."""
    count, rounds = context.scaled(300, 100, least=3), context.scaled(9, 5, least=3)
    loads = [load.simulated(survey, count, 60) for survey in ("lsst", "ztf")]
    if context.real:
        loads += load.real(context.real, count)
    yield from each_load(context, loads, "storing", stages, rounds)


def stages(alerts: Load) -> Iterator[Figure]:
    """The figures of one round."""
    reader, count = batch_decoder(), len(alerts.messages)
    messages = views_of_one_buffer(alerts.messages)
    objects = MemoryObjects()
    table = Table(objects, PACKETS, threads=1)
    batch = Batch(messages, [Position("topic", 0, n) for n in range(count)])
    decode, decoded = per_alert(lambda: reader.detections(messages), count)
    raw, _ = per_alert(lambda: [write_raw(each) for each in decoded.raw], count)
    run, _ = per_alert(lambda: run_of(DETECTIONS, decoded.rows, Coverage()), count)
    packets, _ = per_alert(lambda: store_packets(table, batch, decoded.groups), count)
    subject = f"packets: {alerts.title}"
    rest = Rival("decode, raw alerts and run of `lightcurves`", decode + raw + run)
    yield Figure(subject, "added to `lightcurves`", packets, UNIT, rest)
    if alerts.ids:  # simulated: those that `ingest` measured
        everything = Rival("an alert in all processes of `ingest`", INGEST_MS[alerts.survey])
        yield Figure(subject, "added to all", packets, UNIT, everything, MUST)
    for name, prefix in (("packets", "packets/"), ("their index", "tables/packets/")):
        size = sum(info.size for info in objects.list(prefix))
        yield Figure(subject, name, size / count / 1e3, "GB per 10^6 alerts")
