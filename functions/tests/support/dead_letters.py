"""Dead letters for tests: made, stored, and listed."""

import random

import pyarrow as pa

from stampede.deadletters.dead_letter import write_letters
from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader
from stampede.events.event import Event
from stampede.store.coverage import Coverage
from stampede.store.objects import Objects
from stampede.store.schema import TABLES
from stampede.store.tables import Table


def event(offset: int | None, topic: str = "alerts", reason: str = "no alert") -> Event:
    attributes = {"specversion": "1.0", "type": "t", "id": str(offset), "source": f"x#{topic}"}
    if offset is not None:
        attributes["subject"] = f"partition:0#{offset}"
    attributes |= {"knativeerrorcode": "400", "knativeerrordata": reason}
    return Event(attributes, random.Random(offset).randbytes(20))


def put_letters(objects: Objects, *events: Event, table: str = "cutouts") -> str:
    """Store one object of dead letters; returns its key."""
    key, data = write_letters(table, events)
    objects.put(key, data)
    return key


def put_run(objects: Objects, *offsets: int, table: str = "cutouts") -> None:
    """Store a run without rows; only its coverage matters here."""
    rows = pa.Table.from_pylist([], schema=TABLES[table].schema)
    Table(objects, TABLES[table]).append(rows, Coverage.of({("alerts", 0): offsets}))


def ids(objects: Objects, *choice: object) -> list[str]:
    """Ids of the letters that `DeadLetterFilter(*choice)` selects, in the order of reading."""
    reader = DeadLetterReader(objects, DeadLetterFilter(*choice))  # type: ignore[arg-type]
    return [letter.id for letter in reader.letters()]
