"""When each alert became durable, from the footers of the runs that hold it.

A run of level 0 says which offsets it holds, and the store when it took the run. The gateway of
Ceph stamps an object when it has received it, which is some milliseconds before it answers.
"""

import time
from collections.abc import Iterator

import numpy as np

from stampede.errors import StampedeError
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage, split_topic_key
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, PACKETS
from stampede.store.tables.table import Table
from stampede_bench.visits.sender import PARTITIONS, Sent

SPECS = (CUTOUTS, DETECTIONS, PACKETS)
LOOK_SECONDS = 2.0  # a look lists all tables; the times are the store's, whenever it comes
STALLED_SECONDS = 120.0


class DurableTimes:
    """The times (s, UNIX) at which offsets of a topic were stored, by table.

    Parameters
    ----------
    objects
        The store.
    topic
        Name of the topic; its partitions are 0 to `PARTITIONS`.
    most
        More than the largest offset.
    """

    def __init__(self, objects: Objects, topic: str, most: int) -> None:
        self._topic = topic
        self._tables = {spec.name: Table(objects, spec) for spec in SPECS}
        self._times = {name: np.full((PARTITIONS, most), np.inf) for name in self._tables}
        self._known: set[str] = set()

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        return list(self._tables)

    def close(self) -> None:
        """Stop the tables' threads."""
        for table in self._tables.values():
            table.close()

    def of(self, table: str, sent: Sent) -> np.ndarray:
        """When the alerts of a visit were stored in a table, shape (size,); infinite: not yet."""
        times: np.ndarray = self._times[table][sent.partitions, sent.offsets]
        return times

    def durable(self, sent: Sent) -> np.ndarray:
        """When the alerts of a visit were stored in all tables, shape (size,)."""
        latest: np.ndarray = np.max([self.of(name, sent) for name in self._tables], axis=0)
        return latest

    def look(self) -> None:
        """Note the runs that are new. Compaction must not have deleted any meanwhile."""
        for name, table in self._tables.items():
            table.refresh()
            for part in table.listed():
                if part.name.level == 0 and part.key not in self._known:
                    self._known.add(part.key)
                    self._note(self._times[name], part)

    def wait(self, sent: Sent) -> np.ndarray:
        """`durable`, once it is finite. Raises `StampedeError` if nothing more is stored."""
        missing, since = len(sent.offsets) + 1, time.monotonic()
        while True:
            self.look()
            durable = self.durable(sent)
            left = int(np.isinf(durable).sum())
            if not left:
                return durable
            if left < missing:
                missing, since = left, time.monotonic()
            elif time.monotonic() - since > STALLED_SECONDS:
                raise StampedeError(f"{left:,} alerts were not stored in {STALLED_SECONDS:.0f} s")
            time.sleep(LOOK_SECONDS)

    def stored(self) -> int:
        """How many offsets of the topic each table holds, by the coverage of its live runs."""
        counts = []
        for table in self._tables.values():
            table.refresh()
            messages, _ = table.coverage().split()
            counts.append(sum(end - begin for _, begin, end in self._intervals(messages)))
        return min(counts)

    def _note(self, times: np.ndarray, part: RunInfo) -> None:
        stored = part.object.modified.timestamp()
        for partition, begin, end in self._intervals(part.coverage):
            of_part = times[partition, begin:end]
            np.minimum(of_part, stored, out=of_part)

    def _intervals(self, coverage: Coverage) -> Iterator[tuple[int, int, int]]:
        """Partition, begin and end of each interval of the topic."""
        for key, partition in coverage.partitions():
            if split_topic_key(key)[0] == self._topic:
                for begin, end in coverage.intervals(key, partition):
                    yield partition, begin, end
