"""Stores the packets of a batch, before `lightcurves` stores its points."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from stampede.alerts.groups import Group
from stampede.alerts.packets import packet_rows
from stampede.events.envelope import Envelope
from stampede.events.event import coverage_of_positions
from stampede.events.worker import Batch
from stampede.store.coverage import Coverage, split_topic_key
from stampede.store.packets import write_packets
from stampede.store.tables import Table


def store_packets(table: Table, batch: Batch, groups: Sequence[Group]) -> int:
    """Store the packets of the alerts in `groups`; return how many bytes were put.

    One pack for each night, then the run of `table` that locates them all. Raises `StoreDown`.
    """
    if not groups:
        return 0
    rows, packets = packet_rows(groups, batch.messages)
    rows = _with_envelopes(rows, batch)
    nights = rows["night"].to_numpy()
    begins = [0, *(np.flatnonzero(nights[1:] != nights[:-1]) + 1).tolist(), len(nights)]
    stored, locations, coverages = 0, [], []
    for begin, end in pairwise(begins):
        of_night = rows.slice(begin, end - begin)
        numbers = of_night["number"].to_pylist()
        coverage = coverage_of_positions(batch.positions[number] for number in numbers)
        pack = write_packets(of_night, packets[begin:end], coverage)
        table.objects.put(pack.key, pack.data, pack.sha256)
        stored += len(pack.data)
        locations.append(pack.locations)
        coverages.append(coverage)
    table.append(pa.concat_tables(locations), Coverage.union(coverages))
    return stored


def _with_envelopes(rows: pa.Table, batch: Batch) -> pa.Table:
    """`rows` with the columns of the Kafka record that each alert came in."""
    numbers = rows["number"].to_pylist()
    positions = [batch.positions[number] for number in numbers]
    envelopes = [batch.envelopes[number] if batch.envelopes else Envelope() for number in numbers]
    columns = {
        "topic": pa.array([p and split_topic_key(p.topic)[0] for p in positions], pa.string()),
        "partition": pa.array([p and p.partition for p in positions], pa.int32()),
        "offset": pa.array([p and p.offset for p in positions], pa.int64()),
        "time": pa.array([each.moment for each in envelopes], pa.timestamp("ms", "UTC")),
        "key": pa.array([each.key for each in envelopes], pa.string()),
        "headers": pa.array([each.headers for each in envelopes], pa.string()),
    }
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    return rows
