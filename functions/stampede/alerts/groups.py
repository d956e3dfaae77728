"""The output of a batch: rows of cutouts, points of light curves, and the alerts as sent.

A batch holds alerts of several schemas. A `Group` holds the decoded alerts of one schema.
"""

from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.alerts.arrays import table_of
from stampede.alerts.columns import CUTOUT, KINDS
from stampede.alerts.container import Bytes
from stampede.alerts.surveys.survey import NotFits, Survey
from stampede.errors import StampedeError, Unusable

HEAD_COLUMNS = ("alert_id", "object_id", "mjd", "band", "ra", "dec")

# Errors of single messages, by the message's number in the batch.
Faults = dict[int, StampedeError]


class Group(NamedTuple):
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
    """

    survey: Survey
    table: pa.Table
    heads: pa.Table
    images: dict[str, list[Bytes | None]]
    messages: np.ndarray

    def filter(self, keep: np.ndarray) -> "Group":
        """The alerts for which `keep` is true."""
        mask = pa.array(keep)
        return Group(
            self.survey,
            self.table.filter(mask).combine_chunks(),
            self.heads.filter(mask).combine_chunks(),
            {kind: [*compress(images, keep)] for kind, images in self.images.items()},
            self.messages[keep],
        )


class RawAlerts(NamedTuple):
    """Alerts of one schema in the survey's own columns, one row per alert, ordered by id.

    They hold all fields except the cutouts and the history, whose points came as alerts themselves.

    Attributes
    ----------
    night
        Night of the latest alert: integer MJD TAI.
    """

    survey: str
    night: int
    table: pa.Table


def unusable(group: Group, latest_mjd: float) -> Faults:
    """A fault for each alert that lacks an id or a time, or whose time is after `latest_mjd`."""
    heads = group.heads
    reasons = {
        "it has no id": heads["alert_id"].is_null(),
        "it has no object id": heads["object_id"].is_null(),
        "it has no observation time": heads["mjd"].is_null(),
        f"its observation time is in the future (after MJD {latest_mjd:.1f})": pc.fill_null(
            pc.greater(heads["mjd"], latest_mjd), False
        ),
    }
    faults: Faults = {}
    for reason, mask in reasons.items():
        for row in np.flatnonzero(mask.to_numpy()).tolist():
            alert = _describe(heads.slice(row, 1).to_pylist()[0])
            fault = Unusable(f"{alert} cannot be stored: {reason}")
            faults.setdefault(int(group.messages[row]), fault)
    return faults


def _describe(head: dict) -> str:
    return f"alert {head['alert_id']} of object {head['object_id']} at MJD {head['mjd']}"


def cutout_rows(group: Group) -> tuple[pa.Table, Faults]:
    """Three rows of `CUTOUT` per alert, in the order of a pack.

    An alert with an image that is not FITS has a fault and no rows.
    """
    ids = group.heads["alert_id"].to_pylist()
    files, faults = _gzip_files(group, ids)
    # In the order of a pack, so that the pack's writer need not copy all images again.
    order, kinds = np.argsort(ids, kind="stable"), sorted(KINDS)
    good = [row for row in order.tolist() if group.messages[row] not in faults]
    rows = np.repeat(good, len(kinds)).astype(np.int64)
    heads = group.heads.take(pa.array(rows))
    columns = {
        **{name: heads[name] for name in HEAD_COLUMNS},
        "survey": group.survey.NAME,
        "kind": pa.array(kinds * len(good), pa.string()),
        "fits": pa.array([files[kind][row] for row in good for kind in kinds], pa.binary()),
    }
    return table_of(CUTOUT, columns, len(rows)), faults


def _gzip_files(group: Group, ids: list[int]) -> tuple[dict[str, list[bytes | None]], Faults]:
    """By kind, the file to store of each alert's image."""
    files: dict[str, list[bytes | None]] = {}
    faults: Faults = {}
    messages = group.messages.tolist()
    for kind in KINDS:
        files[kind] = column = []
        for image, alert_id, message in zip(group.images[kind], ids, messages, strict=True):
            file = None
            if image is not None and message not in faults:
                try:
                    file = group.survey.gzip_file(image)
                except NotFits as error:
                    faults[message] = Unusable(
                        f"the {kind} cutout of alert {alert_id} is not FITS: {error}"
                    )
            column.append(file)
    return files, faults


def detection_rows(group: Group) -> pa.Table:
    """All points of the light curves, as `DETECTION`.

    History rows without an id or a time are left out: no plot can show them.
    """
    rows = group.survey.detections(group.table, group.heads)
    usable = pc.and_(rows["source_id"].is_valid(), rows["mjd"].is_valid())
    return rows.filter(usable) if pc.any(pc.invert(usable)).as_py() else rows


def raw_alerts(group: Group) -> RawAlerts:
    """The alerts in the survey's own columns."""
    history = group.survey.HISTORY_FIELDS
    own = [name for name in group.table.column_names if "." not in name and name not in history]
    order = pc.sort_indices(group.heads["alert_id"])
    night = int(pc.max(group.heads["mjd"]).as_py())
    return RawAlerts(group.survey.NAME, night, group.table.select(own).take(order))
