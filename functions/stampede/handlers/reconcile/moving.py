"""Derives the rows of the table `moving` again, where alerts are stored without them.

They were stored before the table was there, or a run of `moving` was lost. What is lacking shows in
the coverage of the runs. The rows come out of the alerts' packets, so those of alerts whose packets
are not kept any more cannot be derived.
"""

from collections.abc import Iterator
from contextlib import closing
from math import inf

import pyarrow as pa

from stampede.config.settings import Settings
from stampede.errors import Damaged, NotFound, StampedeError, StoreDown
from stampede.lookup.errors import Gone
from stampede.lookup.lookup import Lookup
from stampede.lookup.packet_points import observations_in
from stampede.lookup.packs.packet_reader import packet_locations
from stampede.store.integrity.verification import verify
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.run import Run, RunInfo, live
from stampede.store.runs.schema import DETECTIONS, MOVING, PACKETS
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()

GROUPS = 10
"""Row groups of places that are in memory at once."""
MOST = 50_000
"""Alerts of a run that a pass with little time reads: about a minute."""


def derive_moving(
    objects: Objects, settings: Settings, repair: bool, has_time: bool
) -> Iterator[tuple[str, bool]]:
    """Derive what `moving` lacks, run by run; only say what, without `repair`.

    Yields the key of each run of `packets` whose alerts had no rows, and whether they have now. One
    that is damaged is left for `scrub`; one of more than `MOST` alerts for a pass that `has_time`.
    Raises `StoreDown`.
    """
    points, moving, packets = (
        Table(objects, spec, cache_bytes=0, threads=1) for spec in (DETECTIONS, MOVING, PACKETS)
    )
    try:
        points.refresh()
        moving.refresh()  # later: its runs are written before those of `detections`
        lacking = points.coverage() - moving.coverage()
        if not lacking:
            return
        packets.refresh()
        for run in live(packets.runs()):
            if not lacking - (lacking - run[0].coverage):
                continue
            few = sum(part.rows for part in run) <= (inf if has_time else MOST)
            with closing(Lookup(objects, settings)) as lookup:
                yield run[0].key, repair and few and _derive(packets, moving, lookup, run)
    finally:
        for table in (points, moving, packets):
            table.close()


def _derive(packets: Table, moving: Table, lookup: Lookup, run: Run) -> bool:
    """Append the rows of a run, with its coverage last; False if any of them cannot be read."""
    waiting = MOVING.schema.empty_table()
    try:
        for part in run:
            for rows in _chunks(packets, part):
                if waiting.num_rows:
                    moving.append(waiting, Coverage())
                waiting = _observations(lookup, rows)
    except (Damaged, NotFound) as error:
        log.error("observations not derived", key=run[0].key, why=error.message)
        return False
    moving.append(waiting, run[0].coverage)
    return True


def _chunks(packets: Table, part: RunInfo) -> Iterator[pa.Table]:
    """The rows of a part, some at a time. Raises `Damaged`, `NotFound`, `StoreDown`."""
    verify(packets.objects, part.object)  # not every page says that it is damaged
    file = packets.reader.open(part)
    for start in range(0, len(file.numbers), GROUPS):
        yield pa.concat_tables(file.read(file.numbers[start : start + GROUPS]))


def _observations(lookup: Lookup, rows: pa.Table) -> pa.Table:
    """Rows of `MOVING` of the alerts at these places. Raises `Damaged`, `NotFound`, `StoreDown`."""
    found = [MOVING.schema.empty_table()]
    for packet, message in lookup.packets.many_without_images(packet_locations(rows)):
        if isinstance(message, Gone):
            continue
        if isinstance(message, StampedeError):
            raise message
        try:
            found.append(observations_in(lookup.records, message))
        except (Damaged, StoreDown):
            raise
        except StampedeError as error:  # the registry does not answer, or the record is too large
            raise Damaged(f"alert {packet.alert_id}: {error.message}") from error
    return pa.concat_tables(found)
