"""thumbnails: draws one thumbnail per alert of every new pack, and stores them as a pack.

Order matters as in `cutouts`: first the pack, then the run that points into it, then the response.
A repeated event writes the same objects again.

A thread draws one pack at a time: a thousand alerts take half a second of one core, which is three
times the rate of any survey. Drawing a second pack at once would cost memory and gain little.
Unlike alerts, packs need no worker process: no code here that reads foreign bytes can hang.
"""

import asyncio

import pyarrow as pa
import pyarrow.compute as pc

from stampede.config.settings import Settings
from stampede.errors import Damaged, NotFound
from stampede.events.cloudevents.event import Event
from stampede.events.cloudevents.s3_events import key_of
from stampede.handlers.thumbnails.check import shown_from
from stampede.images.thumbnail import thumbnails
from stampede.runtime.clock import Stopwatch
from stampede.store.integrity.unindexed_packs import PackIndexCheck
from stampede.store.objects.object_store import find
from stampede.store.objects.probes import SENT, receive
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.packs.alert_versions import shown
from stampede.store.packs.pack import read_rows, write_pack
from stampede.store.packs.pack_name import PackName
from stampede.store.packs.retention import Retention
from stampede.store.programmes.keys import programids_of
from stampede.store.runs.schema import CUTOUT_PACKS, CUTOUTS, THUMBNAIL_PACKS, THUMBNAILS
from stampede.store.tables.table import Table
from stampede.telemetry import event_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()


class Thumbnails:
    """Makes the thumbnails of the packs whose events it takes."""

    def __init__(self, settings: Settings) -> None:
        self._objects = open_objects(settings)
        self._table = Table(self._objects, THUMBNAILS)
        self._retention = Retention.of(settings)
        self._drawing = asyncio.Lock()

    async def handle(self, event: Event) -> None:
        """Take the event of a stored object; ignore it if it is no pack of cutouts and no probe.

        Raises `NotAnEvent`, `StoreDown`, `Damaged`.
        """
        key = key_of(event)
        if key.startswith(SENT):
            await asyncio.to_thread(receive, self._objects, key)
        name = PackName.parse(key)
        if name and name.kind == CUTOUT_PACKS.prefix:
            async with self._drawing:
                await asyncio.to_thread(self._make_missing if name.merged else self.make, key)

    def _make_missing(self, key: str) -> None:
        """Store the thumbnails of a merged pack if any alert has none: its packs had events too."""
        check = PackIndexCheck(self._objects, THUMBNAILS)
        info = find(self._objects, key)
        if info and list(check.lacking(iter([info]), lambda _: None)):
            self.make(key)

    def make(self, key: str, again: bool = False) -> None:
        """Store the thumbnails of one pack; `again` to replace wrong ones.

        Then only those of alerts whose cutouts readers get from this pack: another pack may have
        shown the others rightly.

        Raises `StoreDown`, `Damaged`.
        """
        watch = Stopwatch()
        if not self._retention.rights.holds(key):
            log.info("no thumbnails: alerts of a programme that is not stored", pack=key)
            return
        try:
            cutouts, coverage = self._read(key)
        except NotFound:
            if self._retention.expired(key):
                log.info("no thumbnails: the pack is past its retention", pack=key)
                return
            raise Damaged(f"the store announced {key} but has it no longer") from None
        watch.lap("get")
        drawn = thumbnails(shown(cutouts, "fits"))
        watch.lap("draw")
        pack = write_pack(drawn.rows, coverage, THUMBNAIL_PACKS, programids_of(key))
        watch.lap("pack")
        self._objects.put(pack.key, pack.data, pack.sha256)
        watch.lap("put")
        if again:
            self._replace(key, pack.locations)
        else:
            self._table.append(pack.locations, coverage)
        watch.lap("index")
        event_metrics.count_flush("thumbnails", drawn.rows.num_rows, len(pack.data), watch.laps)
        for outcome, number in drawn.panels.items():
            event_metrics.PANELS.labels(outcome).inc(number)
        log.info(
            "thumbnails drawn",
            pack=key,
            alerts=drawn.rows.num_rows,
            damaged=drawn.panels["damaged"],
            bytes=len(pack.data),
            milliseconds=round(1000 * sum(watch.laps.values())),
        )

    def _replace(self, key: str, locations: pa.Table) -> None:
        """Store rows for the alerts shown from a pack, such that they win over all there are."""
        ids = locations["alert_id"].unique().to_pylist()
        cutouts = Table(self._objects, CUTOUTS, threads=1)
        cutouts.refresh()
        here = shown_from(key, cutouts.lookup(ids))
        names = zip(locations["alert_id"].to_pylist(), locations["survey"].to_pylist(), strict=True)
        rows = locations.filter(pa.array([name in here for name in names], pa.bool_()))
        if rows.num_rows:
            # Rows of some alerts only must not claim the offsets of the whole pack.
            self._table.append(self._redrawn(rows), Coverage())

    def _redrawn(self, locations: pa.Table) -> pa.Table:
        """The rows, such that they win over all that the table has now."""
        self._table.refresh()
        before = self._table.lookup(locations["alert_id"].unique().to_pylist())["redrawn"]
        number = pa.scalar((pc.max(before).as_py() or 0) + 1, pa.int32())
        at = locations.schema.get_field_index("redrawn")
        field = locations.schema.field(at)
        return locations.set_column(at, field, pa.repeat(number, len(locations)))

    def _read(self, key: str) -> tuple[pa.Table, Coverage]:
        """The cutouts of a pack, verified. Raises `NotFound`, `StoreDown`, `Damaged`."""
        try:
            return read_rows(self._objects.get(key), key)
        except Damaged:  # a second reading tells a damaged object from a damaged answer
            return read_rows(self._objects.get(key), key)
