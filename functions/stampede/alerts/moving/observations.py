"""Observations of bodies of the solar system: rows of the table `moving` out of decoded alerts."""

from collections.abc import Sequence
from math import isinf

import pyarrow as pa

from stampede.alerts.arrays import fits, table_of, tidy
from stampede.alerts.columns import MOVING
from stampede.alerts.moving.designations import MOST, standard_form
from stampede.alerts.surveys.survey import Moving, Survey
from stampede.runtime import lazy_arrow_compute as pc

NO_NAME = ("", "null")
"""What surveys write for no body."""
_MEASURED = ("flux", "flux_err", "total_flux", "total_flux_err", "reliability")
_NUMBERS = ("phase_angle", "helio_distance", "topo_distance", "predicted_mag", "offset")


def observations_of(
    survey: Survey, alerts: pa.Table, heads: pa.Table, points: pa.Table
) -> pa.Table:
    """One row of `MOVING` per alert that shows a known body of the solar system.

    An alert whose designation is longer than 64 characters has no row: its packet has it.

    Parameters
    ----------
    alerts, heads
        Alerts of one schema as the survey names their fields, and as `Survey.head` gives them.
    points
        Rows of `DETECTION`, the alerts' own detections among them.

    Raises
    ------
    pyarrow.ArrowInvalid
        A value cannot be read.
    """
    fields = survey.MOVING
    if fields is None:
        return MOVING.empty_table()
    names = _get(alerts, fields.designation, pa.string())
    shown = pc.and_(names.is_valid(), pc.invert(pc.is_in(names, pa.array(NO_NAME))))
    shown = pc.and_(shown, pc.less_equal(pc.utf8_length(names), MOST))
    shown = pc.and_(shown, _near(alerts, fields))
    if not pc.any(shown).as_py():
        return MOVING.empty_table()
    heads, table = (each.filter(shown).combine_chunks() for each in (heads, alerts))
    columns = {
        "designation": pa.array([standard_form(name) for name in names.filter(shown).to_pylist()]),
        "survey": survey.NAME,
        **{name: heads[name] for name in heads.column_names},
        **_measured(heads["alert_id"].to_pylist(), survey.NAME, points),
        **{name: _get(table, getattr(fields, name), pa.float32()) for name in _NUMBERS},
    }
    return table_of(MOVING, columns, heads.num_rows)


def _near(table: pa.Table, fields: Moving) -> pa.Array:
    """Which alerts are as near to the predicted position as the survey's module asks for."""
    offset = _get(table, fields.offset, pa.float32())
    near = pc.and_(pc.greater_equal(offset, 0), pc.less_equal(offset, fields.most_offset))
    return pc.fill_null(near, isinf(fields.most_offset))


def _get(table: pa.Table, names: Sequence[str], kind: pa.DataType) -> pa.Array:
    """The first value of each row that is not null, of these fields: ``a`` or ``a.b``."""
    found = pa.nulls(table.num_rows, kind)
    for name in reversed(names):
        top, _, inner = name.partition(".")
        column = table[top].chunk(0) if top in table.column_names else None
        if inner and column is not None:
            is_record = pa.types.is_struct(column.type)
            known = is_record and column.type.get_field_index(inner) >= 0
            column = pc.struct_field(column, inner) if known else None
        if column is not None and fits(column.type, kind):
            found = pc.coalesce(tidy(column.cast(kind, safe=False)), found)
    return found


def _measured(alert_ids: list[int], survey: str, points: pa.Table) -> dict[str, pa.Array]:
    """What the latest version of each alert's own detection measured; null if it is not there."""
    of_survey = pc.equal(points["survey"], survey)
    own = pc.and_(of_survey, pc.is_in(points["source_id"], pa.array(alert_ids, pa.int64())))
    own = pc.and_(own, pc.invert(pc.or_(points["forced"], points["limit"])))
    rows = points.filter(own).sort_by("processed_mjd")
    last = {source: row for row, source in enumerate(rows["source_id"].to_pylist())}
    taken = pa.array([last.get(alert_id) for alert_id in alert_ids], pa.int64())
    return {name: rows[name].take(taken).combine_chunks() for name in _MEASURED}
