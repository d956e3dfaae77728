"""What a batch of messages is decoded into, and on the way: records, parts, guards, suspects."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.alerts.arrays import viewed, views
from stampede.alerts.framing import WriterSchema
from stampede.alerts.schema_groups import Faults, RawAlerts, SchemaGroup
from stampede.errors import StampedeError
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.decompression import Bytes

Suspect = Callable[[Sequence[int]], None]
"""Takes the numbers of the messages that the next step reads."""
Guard = Callable[[int], AbstractContextManager[None]]
"""Takes a number of bytes: a block of work with them that must end, or the process does."""

Images = dict[str, list[Bytes | None]]

_NONE = -1  # stands for the programme of a survey without programmes


class Decoded(NamedTuple):
    """A decoded batch, or the first messages of one.

    Attributes
    ----------
    rows
        Table of `columns.CUTOUT` or `columns.DETECTION`: the rows of all good messages.
    faults
        Per message None, or its error. Messages beyond its end were not read.
    raw
        With detections, the alerts in the survey's own columns, a table per schema.
    groups
        With detections, the good alerts of each schema, with their images.
    origins
        With cutouts, of each row the number of its `message`, and the `programid` of its alert:
        null where the survey has no observing programmes.
    moving
        With detections, rows of `columns.MOVING`: the alerts of known bodies of the solar system.
    """

    rows: pa.Table
    faults: list[StampedeError | None]
    raw: list[RawAlerts]
    groups: list[SchemaGroup]
    origins: pa.Table
    moving: pa.Table

    def by_night_and_programme(self) -> Iterator["OfNight"]:
        """The rows of cutouts, those of each night and programme by themselves, in that order."""
        nights = np.floor(self.rows["mjd"].to_numpy()).astype(np.int64)
        programids = pc.fill_null(self.origins["programid"], _NONE).to_numpy()
        messages = self.origins["message"].to_numpy()
        parts, part = np.unique(np.stack([nights, programids]), axis=1, return_inverse=True)
        for number, (_, programid) in enumerate(parts.T.tolist()):
            chosen = part.ravel() == number
            rows = self.rows if parts.shape[1] == 1 else _of(self.rows, chosen)
            held = [] if programid == _NONE else [programid]
            yield OfNight(held, rows, np.unique(messages[chosen]).tolist())


class DecodedAlerts(NamedTuple):
    """A batch that was decoded once for both tables: each has faults of its own."""

    cutouts: Decoded
    detections: Decoded


class OfNight(NamedTuple):
    """The rows of a night (integer MJD) of one observing programme, or of surveys without any.

    `messages` are the numbers of their messages, ascending.
    """

    programids: list[int]
    rows: pa.Table
    messages: list[int]


def _of(rows: pa.Table, chosen: np.ndarray) -> pa.Table:
    """The chosen rows of `CUTOUT`. Arrow cannot filter views."""
    at = rows.schema.get_field_index("fits")
    images = compress(viewed(rows["fits"].combine_chunks()), chosen.tolist())
    others = rows.remove_column(at).filter(pa.array(chosen))
    return others.add_column(at, rows.schema.field(at), views([*images]))


class AlertIdentity(NamedTuple):
    """What tells an alert from every other alert."""

    survey: str
    alert_id: int
    object_id: str


class Records(NamedTuple):
    """Records of one schema, and the number of the message that each came in."""

    schema: WriterSchema
    messages: list[int]
    data: list[Bytes]

    def split(self, size: int) -> "Iterator[Records]":
        """The same records, at most `size` at a time."""
        for begin in range(0, len(self.messages), size):
            end = begin + size
            yield Records(self.schema, self.messages[begin:end], self.data[begin:end])

    def without(self, faults: Faults) -> "Records":
        """The records of messages that have no fault."""
        good = [n not in faults for n in self.messages]
        return Records(self.schema, [*compress(self.messages, good)], [*compress(self.data, good)])


class Part(NamedTuple):
    """What became of records of one schema; the attributes are those of `Decoded`.

    `cutouts` are those of the same records, if both were read: these have faults of their own.
    """

    rows: pa.Table
    raw: list[RawAlerts]
    faults: Faults
    groups: Sequence[SchemaGroup] = ()
    origins: pa.Table | None = None
    cutouts: "Part | None" = None
    moving: pa.Table | None = None

    @property
    def lost(self) -> Faults:
        """The faults of messages of which nothing can be stored."""
        others = self.faults if self.cutouts is None else self.cutouts.faults
        return {number: fault for number, fault in self.faults.items() if number in others}


Read = Callable[[Records, bool], Part]
"""Decodes records; takes whether they are to be decoded in isolation."""


class Guards(NamedTuple):
    """The guards around work with a batch, with one that failed before, and with one message."""

    batch: Guard = lambda size: nullcontext()
    isolated: Guard = lambda size: nullcontext()
    message: Guard = lambda size: nullcontext()
