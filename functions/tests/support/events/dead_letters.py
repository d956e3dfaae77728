"""Dead letters for tests: made, stored, and listed."""

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from stampede.alerts.isolation import Isolation
from stampede.deadletters.accept import Acceptances, Selected, decide, select
from stampede.deadletters.dead_letter import write_letters
from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader
from stampede.deadletters.stored import NOTHING_STORED, StoredAlerts, stored_offsets
from stampede.errors import StampedeError
from stampede.events.cloudevents.event import Event
from stampede.events.workers.worker import Batch
from stampede.handlers.audit.alert_check import reasons
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_batch_decoder


def event(offset: int | None, topic: str = "alerts", reason: str = "no alert") -> Event:
    attributes = {"specversion": "1.0", "type": "t", "id": str(offset), "source": f"x#{topic}"}
    if offset is not None:
        attributes["subject"] = f"partition:0#{offset}"
    attributes |= {"knativeerrorcode": "400", "knativeerrordata": reason}
    return Event(attributes, alert(offset or 0))


@cache
def alert(number: int) -> bytes:
    """An alert of its own; its id is one above `number`."""
    return made_alerts.ztf_alert(number + 1)


def put_letters(objects: Objects, *events: Event, table: str = "cutouts") -> str:
    """Store one object of dead letters; returns its key."""
    key, data = write_letters(table, events)
    objects.put(key, data)
    return key


def accept(
    objects: Objects,
    *ids: str,
    undo: bool = False,
    reason: str = "",
    stored: StoredAlerts = NOTHING_STORED,
) -> Selected:
    """Accept the letters with these ids, or all."""
    reader = DeadLetterReader(objects, DeadLetterFilter(ids=frozenset(ids) if ids else None))
    acceptances = Acceptances(objects)
    selected = select(stored.of(reader.letters()), acceptances, undo)
    decide(objects, selected, acceptances, reason, undo)
    return selected


def put_run(objects: Objects, *offsets: int, table: str = "cutouts", other: int = 0) -> None:
    """Store the alerts of `event` as one run, or other alerts at these offsets."""
    with tempfile.TemporaryDirectory() as directory:
        decoder = make_batch_decoder(Path(directory))
        alerts = [alert(offset + other) for offset in offsets]
        coverage = Coverage.of({("alerts", 0): offsets})
        if table == "cutouts":
            pack = write_pack(decoder.cutouts(alerts).rows, coverage)
            objects.put(pack.key, pack.data)
            rows = pack.locations
        else:
            rows = decoder.detections(alerts).rows
        Table(objects, TABLES[table]).append(rows, coverage)


def stored_alerts(objects: Objects) -> StoredAlerts:
    """What is stored now; letters are decoded in this process."""

    def check(table: str, events: Sequence[Event]) -> Sequence[StampedeError | None]:
        with tempfile.TemporaryDirectory() as directory:
            decoder = make_batch_decoder(Path(directory))
            messages = [event.data for event in events]
            batch = Batch(messages, [None] * len(messages), Isolation.CHECKED)
            return reasons(Table(objects, TABLES[table]), decoder, batch)

    return StoredAlerts(stored_offsets(objects), check)


def ids(objects: Objects, *choice: object) -> list[str]:
    """Ids of the letters that `DeadLetterFilter(*choice)` selects, in the order of reading."""
    reader = DeadLetterReader(objects, DeadLetterFilter(*choice))  # type: ignore[arg-type]
    return [letter.id for letter in reader.letters()]
