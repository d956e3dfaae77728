"""Stores the packets of a batch, before `lightcurves` stores its points."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from stampede.alerts.packets import packet_rows
from stampede.alerts.schema_groups import SchemaGroup
from stampede.events.cloudevents.envelope import Envelope
from stampede.events.cloudevents.event import coverage_of_positions
from stampede.events.workers.worker import Batch
from stampede.runtime.decompression import Bytes
from stampede.store.offsets.coverage import Coverage, split_topic_key
from stampede.store.packs.packets import write_packets
from stampede.store.tables.table import Table


def store_packets(table: Table, batch: Batch, groups: Sequence[SchemaGroup]) -> int:
    """Store the packets of the alerts in `groups`; return how many bytes were put.

    One pack for each night and each set of observing programmes in a packet, then the run of
    `table` that locates them all. Raises `StoreDown`.
    """
    if not groups:
        return 0
    rows, packets = packet_rows(groups, batch.messages)

    def coverage_of(numbers: Sequence[int]) -> Coverage:
        return coverage_of_positions(batch.positions[number] for number in numbers)

    return put_packets(table, _with_envelopes(rows, batch), packets, coverage_of)


def put_packets(
    table: Table,
    rows: pa.Table,
    packets: Sequence[Sequence[Bytes]],
    coverage_of: Callable[[Sequence[int]], Coverage],
) -> int:
    """Store packets as `store_packets`.

    Parameters
    ----------
    rows, packets
        As `packet_rows` returns them, with the columns of the Kafka records.
    coverage_of
        The coverage of messages, by their numbers.
    """
    programids = rows["programids"].to_pylist()
    begins = _begins(rows["night"].to_numpy(), np.array(programids))
    stored, locations, coverages = 0, [], []
    for begin, end in pairwise(begins):
        some = rows.slice(begin, end - begin)
        coverage = coverage_of(some["number"].to_pylist())
        held = [int(one) for one in programids[begin].split(".") if one]
        pack = write_packets(some, packets[begin:end], coverage, held)
        table.objects.put(pack.key, pack.data, pack.sha256)
        stored += len(pack.data)
        locations.append(pack.locations)
        coverages.append(coverage)
    table.append(pa.concat_tables(locations), Coverage.union(coverages))
    return stored


def _begins(*columns: np.ndarray) -> list[int]:
    """Where rows begin that agree in these columns, and the number of all rows."""
    new = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return [0, *(np.flatnonzero(new) + 1).tolist(), len(columns[0])]


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
        "record": pa.array([each.record for each in envelopes], pa.string()),
    }
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    return rows
