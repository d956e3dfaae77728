"""The output of a batch: rows of cutouts, points of light curves, and the alerts as sent.

A batch holds alerts of several schemas. A `SchemaGroup` holds the decoded alerts of one schema.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stampede.alerts.arrays import table_of, views
from stampede.alerts.bounds import OBJECT_ID, Times, TooManyPixels
from stampede.alerts.columns import CUTOUT, KINDS
from stampede.alerts.surveys.survey import NotFits, Survey
from stampede.errors import StampedeError, Unusable
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.decompression import Bytes

LEFT_OUT = "stampede.left_out"  # metadata of raw alerts: names of fields, JSON
HEAD_COLUMNS = ("alert_id", "object_id", "mjd", "band", "ra", "dec")

# Of rows of cutouts: the message that they came in, and the observing programme of their alert.
ORIGIN = pa.schema([("message", pa.int64()), ("programid", pa.int32())])

# Errors of single messages, by the message's number in the batch.
Faults = dict[int, StampedeError]


class MixedProgrammes(NamedTuple):
    """What is stored of an alert whose history has points of other programmes than its own.

    Attributes
    ----------
    programids
        The programmes of the points that are stored, the alert's own among them.
    message
        The message without the rows that are not stored; None if all are.
    record
        The record in that message.
    rows_cut
        How many these rows are.
    """

    programids: frozenset[int]
    message: bytes | None = None
    record: bytes = b""
    rows_cut: int = 0


class SchemaGroup(NamedTuple):
    """Decoded alerts of one schema.

    Attributes
    ----------
    table
        Their fields as the survey names them, without the images.
    heads
        The same alerts as `Survey.head` gives them.
    images
        By kind, each alert's image as the survey sent it.
    messages
        Number of the message that each alert came in.
    records
        Each alert's record, without the frame that it came in.
    crc32s
        CRC-32 of each record, uint32.
    mixed
        Of detections, by number of the message, what is stored of alerts with a mixed history.
    """

    survey: Survey
    table: pa.Table
    heads: pa.Table
    images: dict[str, list[Bytes | None]]
    messages: np.ndarray
    records: Sequence[Bytes]
    crc32s: np.ndarray
    mixed: Mapping[int, MixedProgrammes] = MappingProxyType({})

    def filter(self, keep: np.ndarray) -> "SchemaGroup":
        """The alerts for which `keep` is true."""
        mask = pa.array(keep)
        return SchemaGroup(
            self.survey,
            self.table.filter(mask).combine_chunks(),
            self.heads.filter(mask).combine_chunks(),
            {kind: [*compress(images, keep)] for kind, images in self.images.items()},
            self.messages[keep],
            [*compress(self.records, keep)],
            self.crc32s[keep],
            self.mixed,
        )

    def without(self, faults: Faults) -> "SchemaGroup":
        """The alerts whose messages have no fault."""
        if not faults:
            return self
        return self.filter(np.array([number not in faults for number in self.messages.tolist()]))


class RawAlerts(NamedTuple):
    """Alerts of one schema in the survey's own columns, one row per alert, ordered by id.

    They hold all fields except the cutouts and the history, whose points came as alerts themselves.

    Attributes
    ----------
    night
        Night of the latest alert: integer MJD TAI.
    programid
        Their observing programme; None if the survey has none.
    """

    survey: str
    night: int
    table: pa.Table
    programid: int | None = None


def unusable(group: SchemaGroup, times: Times, programids: frozenset[int]) -> Faults:
    """A fault for each alert that could not be served, or is of a programme that is not stored."""
    heads = group.heads
    ids, objects, mjd = heads["alert_id"], heads["object_id"], heads["mjd"]
    reasons = {
        "it has no id": ids.is_null(),
        "its id is not a positive number": pc.less(ids, 1),
        "it has no object id": objects.is_null(),
        "its object id is not 1 to 64 letters, digits and _ . + -": _no_object_id(objects),
        "it has no observation time": mjd.is_null(),
        f"its observation time is before MJD {times.earliest:.0f}": pc.less(mjd, times.earliest),
        f"its observation time is in the future (after MJD {times.latest:.1f})": pc.greater(
            mjd, times.latest
        ),
    }
    if "programid" in heads.column_names:
        stored = ", ".join(map(str, sorted(programids)))
        known = pc.is_in(heads["programid"], pa.array(sorted(programids), pa.int32()))
        reasons[f"its programid is not one that is stored here ({stored})"] = pc.invert(known)
    faults: Faults = {}
    for reason, mask in reasons.items():
        for row in np.flatnonzero(pc.fill_null(mask, False).to_numpy()).tolist():
            alert = _describe(heads.slice(row, 1).to_pylist()[0])
            fault = Unusable(f"{alert} cannot be stored: {reason}")
            faults.setdefault(int(group.messages[row]), fault)
    return faults


def _no_object_id(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.invert(pc.match_substring_regex(ids, f"^({OBJECT_ID.pattern})$"))


def _describe(head: dict[str, Any]) -> str:
    """An alert in a few words; an id that anybody may have chosen is shortened."""
    alert_id, object_id, mjd = head["alert_id"], head["object_id"], head["mjd"]
    shown = object_id if object_id is None or len(object_id) <= 64 else f"{object_id[:64]}…"
    programid = f", programid {head['programid']}" if "programid" in head else ""
    return f"alert {alert_id} of object {shown} at MJD {mjd}{programid}"


def cutout_rows(group: SchemaGroup) -> tuple[pa.Table, Faults, pa.Table]:
    """Three rows of `CUTOUT` per alert, in the order of a pack.

    An alert with an image that is not FITS has a fault and no rows. The last value is `ORIGIN`,
    for each row.
    """
    ids = group.heads["alert_id"].to_pylist()
    files, faults = _files(group, ids)
    # In the order of a pack, so that the pack's writer need not copy the images to sort them.
    order, kinds = np.argsort(ids, kind="stable"), sorted(KINDS)
    good = [row for row in order.tolist() if group.messages[row] not in faults]
    rows = np.repeat(good, len(kinds)).astype(np.int64)
    heads = group.heads.take(pa.array(rows))
    columns = {
        **{name: heads[name] for name in HEAD_COLUMNS},
        "survey": group.survey.NAME,
        "kind": pa.array(kinds * len(good), pa.string()),
        "message_crc32": pa.array(group.crc32s[rows]),
        "fits": views([files[kind][row] for row in good for kind in kinds]),
    }
    origins = {"message": pa.array(group.messages[rows])}
    if "programid" in heads.column_names:
        origins["programid"] = heads["programid"]
    origin = table_of(ORIGIN, origins, len(rows))
    return table_of(CUTOUT, columns, len(rows)), faults, origin


def _files(group: SchemaGroup, ids: list[int]) -> tuple[dict[str, list[Bytes | None]], Faults]:
    """By kind, the file of each alert's image, as sent."""
    files: dict[str, list[Bytes | None]] = {}
    faults: Faults = {}
    messages = group.messages.tolist()
    for kind in KINDS:
        files[kind] = column = []
        for image, alert_id, message in zip(group.images[kind], ids, messages, strict=True):
            file = None
            if image is not None and message not in faults:
                try:
                    group.survey.check_file(image)
                except NotFits as error:
                    reason = f"is not FITS: {error}"
                except TooManyPixels as error:
                    reason = f"is too large: {error}"
                else:
                    file, reason = image, ""
                if reason:
                    faults[message] = Unusable(f"the {kind} cutout of alert {alert_id} {reason}")
            column.append(file)
    return files, faults


class Points(NamedTuple):
    """Points of light curves out of a group of alerts.

    Attributes
    ----------
    rows
        Of `DETECTION`, those of programmes that are stored.
    faults
        Of alerts with a point that could not be served: they have no rows.
    programids
        By number of the message, the programmes of all points of an alert, if they are several.
    """

    rows: pa.Table
    faults: Faults
    programids: dict[int, frozenset[int]]


def detection_rows(group: SchemaGroup, times: Times, programids: Collection[int]) -> Points:
    """All points of the light curves, of the programmes that are stored.

    An alert with a point that could not be served, by its id or its time, has a fault and no rows:
    to leave out the point alone would be a loss that nobody sees.
    """
    rows = group.survey.detections(group.table, group.heads)
    several = _several(rows["programid"])
    if not several and not _bad_points(rows, times).any():
        return Points(rows, {}, {})
    numbers = _numbers(group)
    found: dict[int, frozenset[int]] = {}
    if several:
        found = _programids(group, numbers, rows)
        stored = pc.is_in(rows["programid"], pa.array(sorted(programids), pa.int32()))
        rows, numbers = rows.filter(stored), numbers.filter(stored)
    faults: Faults = {}
    bad = pa.array(_bad_points(rows, times))
    for number, point in zip(
        numbers.filter(bad).to_pylist(), rows.filter(bad).to_pylist(), strict=True
    ):
        alert = _describe(group.heads.slice(number, 1).to_pylist()[0])
        faults.setdefault(
            int(group.messages[number]),
            Unusable(f"{alert} cannot be stored: {_describe_point(point)}, not of {times}"),
        )
    good = pc.invert(pc.is_in(numbers, numbers.filter(bad).combine_chunks()))
    return Points(rows.filter(good), faults, found)


def _numbers(group: SchemaGroup) -> pa.ChunkedArray:
    """The number of the alert that each point comes from: it stands for its object id here."""
    numbers = pa.array(map(str, range(group.heads.num_rows)), pa.string())
    at = group.heads.schema.get_field_index("object_id")
    numbered = group.heads.set_column(at, "object_id", numbers)
    return group.survey.detections(group.table, numbered)["object_id"].cast(pa.int64())


def _several(programids: pa.ChunkedArray) -> bool:
    """Whether the points are of more than one programme. A survey without programmes has nulls."""
    if programids.null_count == len(programids):
        return False
    ends = pc.min_max(programids)
    return bool(programids.null_count > 0 or ends["min"] != ends["max"])


def _programids(
    group: SchemaGroup, numbers: pa.ChunkedArray, rows: pa.Table
) -> dict[int, frozenset[int]]:
    """By number of the message, the programmes of alerts whose points are of several."""
    pairs = pa.table({"number": numbers, "programid": rows["programid"]})
    found: dict[int, set[int]] = {}
    for pair in pairs.group_by(["number", "programid"]).aggregate([]).to_pylist():
        found.setdefault(int(group.messages[pair["number"]]), set()).add(pair["programid"])
    return {message: frozenset(ids) for message, ids in found.items() if len(ids) > 1}


def _bad_points(rows: pa.Table, times: Times) -> np.ndarray:
    """Whether each point has no positive id, or no time within the bounds."""
    known = pc.and_(rows["source_id"].is_valid(), rows["mjd"].is_valid())
    after = pc.and_(pc.greater(rows["source_id"], 0), pc.greater_equal(rows["mjd"], times.earliest))
    within = pc.and_(after, pc.less_equal(rows["mjd"], times.latest))
    bad: np.ndarray = pc.invert(pc.and_(known, pc.fill_null(within, False))).to_numpy()
    return bad


def _describe_point(point: dict[str, Any]) -> str:
    kind = "forced point" if point["forced"] else "limit" if point["limit"] else "detection"
    return f"its history has a {kind} with id {point['source_id']} at MJD {point['mjd']}"


def raw_alerts(
    group: SchemaGroup, left_out: Sequence[str] = (), types: pa.Schema | None = None
) -> list[RawAlerts]:
    """The alerts in the survey's own columns, those of each programme by themselves.

    Their metadata name the fields that have no column. The columns get the types of `types`, if it
    is given.
    """
    if "programid" not in group.heads.column_names:
        return [_raw_alerts(group, None, left_out, types)]
    ids = group.heads["programid"]
    distinct = sorted(pc.unique(ids).to_pylist())
    if len(distinct) == 1:
        return [_raw_alerts(group, distinct[0], left_out, types)]
    of_each = [(each, group.filter(pc.equal(ids, each).to_numpy())) for each in distinct]
    return [_raw_alerts(some, each, left_out, types) for each, some in of_each]


def _raw_alerts(
    group: SchemaGroup, programid: int | None, left_out: Sequence[str], types: pa.Schema | None
) -> RawAlerts:
    history = group.survey.HISTORY_FIELDS
    own = [name for name in group.table.column_names if "." not in name and name not in history]
    order = pc.sort_indices(group.heads["alert_id"])
    night = int(pc.max(group.heads["mjd"]).as_py())
    table = group.table.select(own).take(order)
    if types:
        table = table.cast(pa.schema([types.field(name) for name in own]))
    named = [name for name in left_out if name.split(".")[0] not in history]
    if named:
        table = table.replace_schema_metadata({LEFT_OUT: json.dumps(named)})
    return RawAlerts(group.survey.NAME, night, table, programid)
