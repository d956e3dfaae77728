"""What a night's packs and raw alerts take before and after they are merged, and what it costs.

The alerts are stored by the functions' own code in a folder, in batches as a burst brings them.
CPU times are those of all threads of this process, and of its own reads and writes of the folder.
Bytes are those of merges and of the proofs before what was merged is deleted, tables included.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.events.cloudevents.envelope import Envelope
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves
from stampede.handlers.merges.images import merge_images
from stampede.handlers.merges.packets import merge_packets
from stampede.handlers.merges.raw_alerts import merge_raw_alerts
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects
from stampede.store.packs.merged_inputs import new_memory
from stampede.store.runs.schema import CUTOUT_PACKS, THUMBNAIL_PACKS
from stampede_bench.figures import Bound, Figure, Rival
from stampede_bench.ingestion.decode import views_of_one_buffer
from stampede_bench.instruments.counting_store import CountingStore
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Fields, Mix, Simulator

BATCH = 200  # alerts
ENOUGH = 2500  # alerts for which one object of each kind is few
SOON = 1e-7  # days
FEW = Bound("<=", 2.0)
"""Objects for a thousand alerts: at 10^10 of them a tenth of what one bucket of Ceph's holds."""
KINDS = {"packs": "cutouts", "thumbnails": "thumbnails", "packets": "packets", "alerts": "raw"}


class Stored(NamedTuple):
    """What a night's objects of one kind take: how many they are, and their bytes."""

    objects: int
    bytes: int


class Spent(NamedTuple):
    """What all merges of a kind take: CPU seconds, and bytes read and written."""

    cpu: float
    read: int
    written: int


def one_night(survey: str, rows: int, alerts: int) -> Iterator[Figure]:
    """The figures of one survey."""
    with tempfile.TemporaryDirectory(prefix="stampede-night-") as folder:
        settings = Settings(
            store=f"file://{folder}/store",
            spool=Path(folder),
            merge_days=0,
            merge_seconds=1e6,
            orphan_days=SOON,
        )
        objects = CountingStore(open_objects(settings))
        stored = _store(settings, survey, rows, alerts)
        for info in list(objects.list("packs/")):
            Thumbnails(settings).make(info.key)
        what = f"a night of {stored:,} {survey.upper()} alerts"
        before = _taken(objects)
        known = new_memory()
        steps: dict[str, Callable[[], bool]] = {
            "cutouts": partial(merge_images, settings, objects, CUTOUT_PACKS, known),
            "thumbnails": partial(merge_images, settings, objects, THUMBNAIL_PACKS, known),
            "raw": partial(merge_raw_alerts, settings, objects, known),
            "packets": partial(merge_packets, settings, objects, known),
        }
        spent = {kind: _merge(step, objects) for kind, step in steps.items()}
        after = _taken(objects)
        for prefix, kind in KINDS.items():
            rival = Rival("as stored", before[prefix].bytes / stored / 1e3)
            size = after[prefix].bytes / stored / 1e3
            yield Figure(f"{kind} of {what}", "merged", size, "KB/alert", rival)
            yield from _costs(f"{kind} of {what}", spent[kind], stored)
        many, few = (
            1e3 * sum(each.objects for each in taken.values()) / stored for taken in (before, after)
        )
        rival = Rival("as stored", many)
        requirement = FEW if stored >= ENOUGH else None
        yield Figure(f"objects of {what}", "merged", few, "per 1,000 alerts", rival, requirement)


def _store(settings: Settings, survey: str, rows: int, most: int) -> int:
    """Store alerts of one night by both functions; how many there were."""
    lsst = survey == "lsst"
    fields = Fields.of_history(rows, most) if lsst else Fields(most)
    mix = Mix(lsst_share=float(lsst), solar_system=0.0, null_cutouts=0.0)
    made = Simulator(1, fields, mix, keep_light_curves=False).alerts(most)
    storers = [function.make_batch_storer(settings) for function in (cutouts, lightcurves)]
    stored, night = 0, None
    while alerts := list(itertools.islice(made, BATCH)):
        nights = {_night(alert) for alert in alerts}
        night = min(nights) if night is None else night
        if nights != {night}:
            alerts = [alert for alert in alerts if _night(alert) == night]
        if not alerts:
            break
        views = views_of_one_buffer([alert.body for alert in alerts])
        positions = [Position("bench@0", 0, stored + number) for number in range(len(alerts))]
        for store in storers:
            store(Batch(views, positions, envelopes=[Envelope(record="")] * len(alerts)))
        stored += len(alerts)
    return stored


def _night(alert: SimulatedAlert) -> int:
    return int(alert.points[0].mjd)


def _merge(step: Callable[[], bool], objects: CountingStore) -> Spent:
    """What all passes of a kind of merge take, until nothing is due."""
    objects.clear()
    begin = time.process_time()
    while step():
        time.sleep(0.02)  # longer than `SOON`
    cpu = time.process_time() - begin
    return Spent(cpu, objects.bytes["get"], objects.bytes["put"])


def _costs(subject: str, spent: Spent, alerts: int) -> Iterator[Figure]:
    yield Figure(subject, "merge and proof", 1e3 * spent.cpu / alerts, "ms CPU/alert")
    yield Figure(subject, "merge and proof read", spent.read / alerts / 1e3, "KB/alert")
    yield Figure(subject, "merge and proof write", spent.written / alerts / 1e3, "KB/alert")


def _taken(objects: Objects) -> dict[str, Stored]:
    found = {}
    for prefix in KINDS:
        sizes = [info.size for info in objects.list(f"{prefix}/")]
        found[prefix] = Stored(len(sizes), sum(sizes))
    return found
