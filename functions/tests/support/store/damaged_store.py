"""A store in which some runs are damaged inside: only reading their rows shows it."""

import pyarrow as pa
import pyarrow.parquet as pq

from stampede.alerts.columns import CUTOUT, DETECTION, KINDS
from stampede.alerts.positions import positions_of
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import write_pack
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, POSITIONS, TableSpec
from stampede.store.tables.table import Table
from tests.support.alerts.fits_files import ztf_source
from tests.support.read.read_service import cutout, point

OBJECTS = "ABC"
ALERTS = dict(zip(OBJECTS, (11, 12, 13), strict=True))
PLACES = dict(zip(OBJECTS, (10.0, 20.0, 30.0), strict=True))
"""Right ascension in degrees; each declination is -5."""


def store_of_three() -> MemoryObjects:
    """Objects A, B and C with an alert each; the rows of each are a run of its own in each table.

    A has a point in the run of B too.
    """
    objects = MemoryObjects()
    for offset, name in enumerate(OBJECTS):
        coverage = Coverage.of({("ztf", 0): [offset]})
        where = {"ra": PLACES[name], "dec": -5.0}
        points = [point(name, "ztf", ALERTS[name], 59000.0, **where)]
        if name == "B":
            points.append(point("A", "ztf", 99, 59001.0, ra=PLACES["A"], dec=-5.0))
        rows = pa.Table.from_pylist(points, DETECTION)
        images = [
            cutout(ALERTS[name], "ztf", kind, name, 59000.0, ztf_source(n))
            for n, kind in enumerate(KINDS)
        ]
        pack = write_pack(pa.Table.from_pylist(images, CUTOUT), coverage)
        objects.put(pack.key, memoryview(pack.data))
        append(objects, CUTOUTS, pack.locations, coverage)
        append(objects, POSITIONS, positions_of(rows.slice(0, 1)), coverage)
        append(objects, DETECTIONS, rows, coverage)
    return objects


def append(objects: Objects, spec: TableSpec, rows: pa.Table, coverage: Coverage) -> None:
    """Write a run."""
    table = Table(objects, spec)
    table.append(rows, coverage)
    table.close()


def run_with(objects: Objects, spec: TableSpec, row: int) -> str:
    """The key of the run that was written as number `row`."""
    table = Table(objects, spec)
    table.refresh()
    topic = ("ztf", 0)
    (key,) = (run.key for run in table.runs() if run.coverage == Coverage.of({topic: [row]}))
    table.close()
    return key


def damage(objects: Objects, spec: TableSpec, row: int) -> str:
    """Flip a bit in the last page of a run, and return its key."""
    key = run_with(objects, spec, row)
    data = bytearray(objects.get(key))
    last = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(0)
    column = last.column(last.num_columns - 1)
    start = column.dictionary_page_offset or column.data_page_offset
    data[start + column.total_compressed_size - 1] ^= 1
    objects.put(key, bytes(data))
    return key


def damage_image(objects: Objects, alert_id: int, kind: str) -> tuple[str, bytes]:
    """Flip a bit of one cutout of an alert; returns the key and the bytes of its pack before."""
    table = Table(objects, CUTOUTS)
    rows = table.lookup([alert_id]).to_pylist()
    table.close()
    (row,) = (row for row in rows if row["kind"] == kind)
    before = objects.get(row["pack"])
    data = bytearray(before)
    data[row["page_offset"] + 12 + row["start"] + 500] ^= 1  # its page is stored as it is
    objects.put(row["pack"], bytes(data))
    return row["pack"], before
