"""The points of a light curve in one message, and what it shows of a body of the solar system."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa

from stampede.alerts import schemas
from stampede.alerts.arrays import chosen
from stampede.alerts.framing import WriterSchema
from stampede.alerts.moving.observations import observations_of
from stampede.lookup.stored_records import Plan, StoredRecords
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.decompression import Bytes
from stampede.store.runs.merge import sort_unique
from stampede.store.runs.schema import DETECTIONS


def points_of(
    records: StoredRecords, message: Bytes, programids: Collection[int] | None
) -> pa.Table:
    """The points in a message that was stored before, as `lightcurves` stores them.

    Those of observing programmes that are not in `programids` are left out, unless it is None.
    Raises as `StoredRecords.read`.

    Returns
    -------
    Table of `columns.DETECTION`, sorted by key, one row for each.
    """
    rows = records.read(message, _plan)
    column = rows["programid"]
    if programids is not None and column.null_count < len(column):  # its survey has programmes
        rows = rows.filter(pc.is_in(column, pa.array(sorted(programids), pa.int32())))
    return sort_unique(rows, DETECTIONS)


def observations_in(records: StoredRecords, message: Bytes) -> pa.Table:
    """What a message that was stored before shows of a body of the solar system: 0 or 1 row.

    Its history is not decoded. Raises as `StoredRecords.read`.

    Returns
    -------
    Table of `columns.MOVING`, as `lightcurves` stores it.
    """
    return records.read(message, _plan_of_observations)


def _plan(schema: WriterSchema, _: frozenset[str]) -> Plan[pa.Table]:
    survey = schema.survey
    images = {*survey.CUTOUT_FIELDS.values()}
    fields = [name for name in schema.fields if name not in images]
    return _plan_of(schema, fields, lambda table: survey.detections(table, survey.head(table)))


def _plan_of_observations(schema: WriterSchema, _: frozenset[str]) -> Plan[pa.Table]:
    survey = schema.survey
    names = [survey.OWN_FIELD, *survey.head_columns(schema.fields, schema.own)]
    if survey.MOVING:
        names += [name for names in survey.MOVING.names for name in names]
    tops = {name.partition(".")[0] for name in names}

    def convert(table: pa.Table) -> pa.Table:
        heads = survey.head(table)
        return observations_of(survey, table, heads, survey.detections(table, heads))

    return _plan_of(schema, [name for name in schema.fields if name in tops], convert)


def _plan_of(
    schema: WriterSchema, fields: Sequence[str], make: Callable[[pa.Table], pa.Table]
) -> Plan[pa.Table]:
    """How to read these fields of a record, and to make rows of the alert in a table."""
    # What the survey's module needs of them, `a` or `a.b`.
    needed = schema.survey.head_columns(schema.fields, schema.own)
    names = [*dict.fromkeys([*needed, *fields])]
    columns = schema.columns
    if not schema.by_record:
        columns = pa.schema([columns.field(name) for name in fields])

    def convert(record: dict[str, Any]) -> pa.Table:
        table = pa.Table.from_pylist([record], columns).combine_chunks()
        return make(chosen(table, names))

    if schema.by_record:  # it has fields that cannot be read
        return Plan(*schema.by_record, True, convert)
    given = {key: schema.parsed[key] for key in ("type", "name", "fields")}
    whole = schemas.without_logical(given)
    kept = {**whole, "fields": [each for each in whole["fields"] if each["name"] in fields]}
    reader = schemas.alone(kept, [whole])
    return Plan(schemas.parsed(whole), schemas.parsed(reader), True, convert)
