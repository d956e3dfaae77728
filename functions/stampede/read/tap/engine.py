"""Runs a plan by DataFusion, in bounded memory, over rows that a reader gives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext, SQLOptions, udf

from stampede.lookup.sky import Places, separation
from stampede.read.tap.errors import BadAdql, QueryTooLarge
from stampede.read.tap.geometry import SEPARATION
from stampede.read.tap.plan import EVERYTHING, POSITION, ROW, Bound, Plan, Source
from stampede.read.tap.tables import TAP_UPLOAD, described

Read = Callable[[str, Sequence[str], Bound], Iterator[pa.Table]]
"""Rows of a table, by its name: the columns of a bound, in chunks."""
_PLAIN = {"string_view": pa.string(), "large_string": pa.string(), "null": pa.string()}
_NARROW = {"int8": pa.int16(), "uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64()}
_SHOWN = ("int16", "int32", "int64", "float", "double", "bool", "string")
MOST_KEYS = 100_000
"""Keys of one look-up; a join with more reads the table."""


class Limits(NamedTuple):
    """Bounds of one query.

    Attributes
    ----------
    rows
        Of the result; one more row is an overflow.
    scanned
        Rows that are read of tables.
    memory
        Bytes that DataFusion may take.
    """

    rows: int
    scanned: int
    memory: int


class Result(NamedTuple):
    """The rows of a query, and whether there are more than it may have."""

    rows: pa.Table
    overflow: bool


class Engine:
    """One query over tables in memory.

    Parameters
    ----------
    uploads
        Tables of TAP_UPLOAD, by name.
    """

    def __init__(
        self, plan: Plan, read: Read, uploads: Mapping[str, pa.Table], limits: Limits
    ) -> None:
        self._plan, self._read, self._limits = plan, read, limits
        self._uploads, self._loaded = uploads, dict[str, pa.Table]()
        self._scanned = self._bytes = self._result_bytes = 0
        runtime = RuntimeEnvBuilder().with_disk_manager_disabled()
        runtime = runtime.with_greedy_memory_pool(limits.memory)
        config = SessionConfig().with_target_partitions(1)
        self._context = SessionContext(config, runtime)
        angles = [pa.float64()] * 4
        self._context.register_udf(udf(_separations, angles, pa.float64(), "stable", SEPARATION))

    def run(self) -> Result:
        """The result. Raises `BadAdql`, `QueryTooLarge`."""
        most = self._limits.rows
        found = self._by_chunk(most + 1) if self._plan.by_chunk else self._at_once(most + 1)
        rows = _plain(pa.Table.from_batches(found), self._plan.metadata)
        return Result(rows[:most], rows.num_rows > most)

    def _by_chunk(self, most: int) -> list[pa.RecordBatch]:
        """At most so many rows of the result, made of one chunk of the only table at a time."""
        [source] = self._plan.sources
        if self._plan.top is not None:
            most = min(most, self._plan.top)
        found: list[pa.RecordBatch] = []
        for rows in self._chunks(source, source.bound):
            self._register(source, rows)
            found += self._collect(most - sum(map(len, found)))
            self._context.deregister_table(source.name)
            if sum(map(len, found)) >= most:
                break
        if not found:
            self._register(source, _none(source))
            found = self._collect(most)
        return found

    def _at_once(self, most: int) -> list[pa.RecordBatch]:
        """At most so many rows of the result, made of all rows that may be needed."""
        for source in _in_order(self._plan.sources):
            rows = self._load(source)
            self._loaded[source.name] = rows
            self._register(source, rows)
        return self._collect(most)

    def _load(self, source: Source) -> pa.Table:
        """All rows of a table that the query may need."""
        schema, _, name = source.table.name.partition(".")
        if schema == TAP_UPLOAD:
            rows = self._uploads[name]
            return rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))
        if not source.stored:
            return described()[source.table.name].select(source.columns)
        chunks = list(self._chunks(source, self._bound(source)))
        return pa.concat_tables(chunks) if chunks else _none(source)

    def _bound(self, source: Source) -> Bound:
        """The bound of a table, with the values that other tables give."""
        bound = source.bound
        if bound.kind not in ("join", "around"):
            return bound
        rows = self._loaded.get(bound.of)
        if rows is None:
            return EVERYTHING
        if bound.kind == "around":
            ra, dec = (_numbers(rows, name) for name in bound.values[:2])
            return Bound("around", "", (ra, dec, bound.values[2]))
        kind = source.table.columns.field(bound.column).type
        try:
            values = rows[bound.values[0]].unique().cast(kind).drop_null().to_pylist()
        except pa.ArrowInvalid:  # texts that are no numbers: DataFusion says so
            return EVERYTHING
        return (
            Bound("keys", bound.column, tuple(values)) if len(values) <= MOST_KEYS else EVERYTHING
        )

    def _chunks(self, source: Source, bound: Bound) -> Iterator[pa.Table]:
        """Rows of a table, counted. Raises `QueryTooLarge`."""
        for rows in self._read(source.table.short, source.columns, bound):
            self._scanned += rows.num_rows
            self._bytes += 0 if self._plan.by_chunk else rows.nbytes
            if self._scanned > self._limits.scanned or self._bytes > self._limits.memory:
                raise QueryTooLarge(
                    f"the query reads more than {self._limits.scanned:,} rows, or "
                    f"{self._limits.memory >> 20} MB: name objects by object_id, alerts by "
                    "alert_id, or a cone; or ask for the first rows by TOP, without ORDER BY"
                )
            yield rows

    def _register(self, source: Source, rows: pa.Table) -> None:
        batches = rows.combine_chunks().to_batches()
        if not batches:
            batches = [pa.RecordBatch.from_pylist([], rows.schema)]
        self._context.register_record_batches(source.name, [batches])

    def _collect(self, most: int) -> list[pa.RecordBatch]:
        """At most so many rows of the result. Raises `BadAdql`, `QueryTooLarge`."""
        options = SQLOptions().with_allow_ddl(False).with_allow_dml(False)
        try:
            frame = self._context.sql_with_options(
                self._plan.sql, options.with_allow_statements(False)
            ).limit(most)
            found = []
            for each in frame.execute_stream():
                batch = each.to_pyarrow()
                self._result_bytes += batch.nbytes
                if self._result_bytes > self._limits.memory // 4:
                    raise QueryTooLarge(
                        f"the result has more than {self._limits.memory >> 22} MB: ask for fewer "
                        "columns, or rows by TOP"
                    )
                found.append(batch)
        except (QueryTooLarge, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the binding raises bare Exception, and its own for panics
            raise _explained(str(error), self._limits) from None
        schema = pa.schema(frame.schema())
        return found or [pa.RecordBatch.from_pylist([], schema)]


def _in_order(sources: Sequence[Source]) -> list[Source]:
    """Tables that others depend on first. Of tables that depend on each other one is read whole."""
    waiting, order, done = list(sources), list[Source](), set[str]()
    while waiting:
        ready = [each for each in waiting if not each.bound.of or each.bound.of in done]
        ready = ready or [min(waiting, key=lambda each: each.bound.kind != "join")]
        waiting = [each for each in waiting if each not in ready]
        done |= {each.name for each in ready}
        order += ready
    return order


def _separations(*angles: pa.Array) -> pa.Array:
    ra, dec, other_ra, other_dec = (
        np.asarray(each.to_numpy(zero_copy_only=False)) for each in angles
    )
    away = separation(Places(other_ra, other_dec), ra, dec)
    return pa.array(away, pa.float64(), from_pandas=True)


def _numbers(rows: pa.Table, name: str) -> list[float]:
    """A column of positions. Raises `BadAdql`."""
    try:
        values = pc.cast(rows[name], pa.float64())
    except pa.ArrowInvalid:
        raise BadAdql(f"the uploaded column {name} is not one of numbers") from None
    return [float("nan") if value is None else value for value in values.to_pylist()]


def _none(source: Source) -> pa.Table:
    """No rows of a table."""
    schema = pa.schema([source.table.columns.field(name) for name in source.columns])
    if source.bound.kind == "around":
        schema = schema.append(pa.field(POSITION, pa.int64()))
    return schema.remove_metadata().empty_table()


def _plain(rows: pa.Table, metadata: Mapping[str, Mapping[bytes, bytes]]) -> pa.Table:
    """The columns of a result in types that a VOTable has, each with a name of its own."""
    columns, fields, seen = [], [], set[str]()
    for each, column in zip(rows.schema, rows.columns, strict=True):
        if each.name in (ROW, POSITION):
            continue
        kind = _PLAIN.get(str(each.type)) or _NARROW.get(str(each.type)) or each.type
        if str(kind) not in _SHOWN:
            kind = pa.int64() if pa.types.is_integer(kind) else pa.float64()
        name, count = each.name, 1
        while name in seen:
            count += 1
            name = f"{each.name}_{count}"
        seen.add(name)
        columns.append(column.cast(kind))
        fields.append(pa.field(name, kind, True, dict(metadata.get(each.name, {}))))
    return pa.table(columns, pa.schema(fields))


def _explained(text: str, limits: Limits) -> BadAdql | QueryTooLarge:
    """What DataFusion says, for who wrote the query."""
    if "Resources exhausted" in text:
        return QueryTooLarge(
            f"the query takes more than {limits.memory >> 20} MB: ask for fewer rows or columns, "
            "without DISTINCT, GROUP BY or ORDER BY of all of them"
        )
    text = text.replace("DataFusion error: ", "").partition("\n")[0]
    return BadAdql(f"the query cannot be run: {text[:300]}")
