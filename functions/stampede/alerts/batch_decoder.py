"""Decodes a batch of messages into one table, and gives each bad message its error.

One bad message never harms the others: its error names the alert and the fault, and the table holds
the rows of the other messages.

Everything done to a message's bytes is done under a guard, which may end the process. Before each
step of a careful decoding, `Suspect` is told which messages the step reads: if the process ends,
one of them is to blame.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.alerts.arrays import concat
from stampede.alerts.bounds import Times
from stampede.alerts.care import Care
from stampede.alerts.columns import CUTOUT, DETECTION
from stampede.alerts.container import Bytes
from stampede.alerts.decoder import Decoder, DecoderFailed, check
from stampede.alerts.framing import Framing, WriterSchema
from stampede.alerts.groups import (
    Faults,
    Group,
    RawAlerts,
    cutout_rows,
    detection_rows,
    raw_alerts,
    unusable,
)
from stampede.alerts.image_tokens import ImageTokens, Misplaced
from stampede.errors import Overloaded, StampedeError, Undecodable

Suspect = Callable[[Sequence[int]], None]
"""Takes the numbers of the messages that the next step reads."""
Guard = Callable[[int], AbstractContextManager[None]]
"""Takes a number of bytes: a block of work with them that must end, or the process does."""

Images = dict[str, list[Bytes | None]]


class Decoded(NamedTuple):
    """A decoded batch.

    Attributes
    ----------
    rows
        Table of `columns.CUTOUT` or `columns.DETECTION`: the rows of all good messages.
    faults
        Per message None, or its error.
    raw
        With detections, the alerts in the survey's own columns, a table per schema.
    groups
        With detections, the good alerts of each schema, with their images.
    """

    rows: pa.Table
    faults: list[StampedeError | None]
    raw: list[RawAlerts]
    groups: list[Group]


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
    """What became of records of one schema: their rows, the alerts as sent, errors, and groups."""

    rows: pa.Table
    raw: list[RawAlerts]
    faults: Faults
    groups: Sequence[Group] = ()


Read = Callable[[Records, bool], Part]
"""Decodes records; takes whether they are to be decoded carefully."""


class Guards(NamedTuple):
    """The guards around work with a batch, with one that failed before, and with one message."""

    batch: Guard = lambda size: nullcontext()
    careful: Guard = lambda size: nullcontext()
    message: Guard = lambda size: nullcontext()


class BatchDecoder:
    """Decodes batches of alerts.

    Parameters
    ----------
    framing
        Takes messages out of their frames.
    decoder
        Decodes records.
    latest_mjd
        Returns the latest MJD TAI that an alert's time may have.
    secret
        Random bytes that no sender can guess, 12 or more (see `image_tokens`).
    guards
        Entered around all work with messages.
    programids
        Observing programmes whose alerts are stored, of a survey that has some (ZTF's public: 1).
    """

    def __init__(
        self,
        framing: Framing,
        decoder: Decoder,
        latest_mjd: Callable[[], float],
        secret: bytes,
        guards: Guards | None = None,
        programids: frozenset[int] = frozenset({1}),
    ) -> None:
        self._framing = framing
        self._decoder = decoder
        self._latest_mjd = latest_mjd
        self._secret = secret
        self._guards = guards or Guards()
        self._programids = programids

    def cutouts(
        self,
        messages: Sequence[Bytes],
        care: Care = Care.FAST,
        suspect: Suspect = lambda numbers: None,
    ) -> Decoded:
        """All cutouts: three rows per alert in the order of a pack, null if none was sent.

        Parameters
        ----------
        care
            More than `Care.FAST` for a batch that made the decoder fail. Then a message that
            cannot be decoded has a fault, whatever the reason.
        suspect
            Called before each step of a careful decoding.

        Raises
        ------
        DecoderFailed
            The batch as a whole cannot be decoded.
        """
        return self._decoded(messages, care, suspect, self._cutouts, CUTOUT)

    def detections(
        self,
        messages: Sequence[Bytes],
        care: Care = Care.FAST,
        suspect: Suspect = lambda numbers: None,
    ) -> Decoded:
        """All points of the light curves, the alerts' own and their histories', as `cutouts`."""
        return self._decoded(messages, care, suspect, self._detections, DETECTION)

    def identities(
        self,
        messages: Sequence[Bytes],
        care: Care = Care.FAST,
        suspect: Suspect = lambda numbers: None,
    ) -> tuple[dict[int, AlertIdentity], list[StampedeError | None]]:
        """By number of message the alert that it is; and per message None, or its error.

        Raises `DecoderFailed`, as `cutouts`.
        """
        alerts: dict[int, AlertIdentity] = {}

        def read(records: Records, careful: bool) -> Part:
            group, faults = self._decode(records, [], careful)
            heads = group.heads.select(["alert_id", "object_id"]).to_pylist()
            for number, head in zip(group.messages.tolist(), heads, strict=True):
                alerts[number] = AlertIdentity(group.survey.NAME, **head)
            return Part(CUTOUT.empty_table(), [], faults)

        faults = self._decoded(messages, care, suspect, read, CUTOUT).faults
        return alerts, faults

    def _decoded(
        self,
        messages: Sequence[Bytes],
        care: Care,
        suspect: Suspect,
        read: Read,
        schema: pa.Schema,
    ) -> Decoded:
        by_schema, faults = self._sort(messages, care, suspect)
        parts: list[Part] = []
        for records in by_schema:
            if care is Care.ALONE:
                for one in records.split(1):
                    faults |= _faults(self._parts(one, care, suspect, read))
                records = records.without(faults)
            parts += self._parts(records, care, suspect, read)
        faults |= _faults(parts)
        rows = concat(schema, [part.rows for part in parts if part.rows.num_rows])
        raw = [alerts for part in parts for alerts in part.raw]
        groups = [group for part in parts for group in part.groups]
        return Decoded(rows, [faults.get(number) for number in range(len(messages))], raw, groups)

    def _sort(
        self, messages: Sequence[Bytes], care: Care, suspect: Suspect
    ) -> tuple[list[Records], Faults]:
        """Take messages out of their frames and sort them by schema."""
        by_schema: dict[int, Records] = {}
        faults: Faults = {}
        fast = care is Care.FAST
        with self._guards.batch(sum(map(len, messages))) if fast else nullcontext():
            for number, message in enumerate(messages):
                try:
                    if not fast:
                        suspect([number])
                    schema, record = self._framed(message, checked=not fast)
                except StampedeError as fault:
                    faults[number] = fault
                    continue
                except Exception as error:  # of a parser that meets bytes nobody thought of
                    if fast:
                        raise DecoderFailed(_reason(error)) from error
                    faults[number] = _cannot_be_decoded(error)
                    continue
                records = by_schema.setdefault(id(schema), Records(schema, [], []))
                records.messages.append(number)
                records.data.append(record)
        return list(by_schema.values()), faults

    def _framed(self, message: Bytes, checked: bool) -> tuple[WriterSchema, Bytes]:
        with self._guards.message(len(message)) if checked else nullcontext():
            schema, record = self._framing.take(message)
        if not len(record):
            raise Undecodable("the message has a frame but no record")
        if checked:
            with self._guards.message(len(record)):
                check(schema, record)
        return schema, record

    def _parts(self, records: Records, care: Care, suspect: Suspect, read: Read) -> Iterator[Part]:
        """Decode records: as one, or, in a careful decoding that fails, their halves."""
        if not records.messages:
            return
        one = len(records.messages) == 1
        guards = self._guards
        guard = guards.batch if care is Care.FAST else guards.message if one else guards.careful
        if care is not Care.FAST:
            suspect(records.messages)
        try:
            with guard(sum(map(len, records.data))):
                part = read(records, care is not Care.FAST)
            yield part
            return
        except Overloaded:  # no room in the spool: no message is at fault
            raise
        except Exception as error:
            if care is Care.FAST:
                raise DecoderFailed(_reason(error)) from error
            if one:
                yield Part(pa.table({}), [], {records.messages[0]: _cannot_be_decoded(error)})
                return
        for half in records.split((len(records.messages) + 1) // 2):
            yield from self._parts(half, care, suspect, read)

    def _cutouts(self, records: Records, careful: bool) -> Part:
        group, faults = self._decode(records, [], careful)
        if not group.heads.num_rows:
            return Part(CUTOUT.empty_table(), [], faults)
        rows, bad_images = cutout_rows(group)
        return Part(rows, [], faults | bad_images)

    def _detections(self, records: Records, careful: bool) -> Part:
        schema = records.schema
        images = schema.survey.CUTOUT_FIELDS.values()
        fields = [name for name in schema.fields if name not in images]
        group, faults = self._decode(records, fields, careful)
        if not group.heads.num_rows:
            return Part(DETECTION.empty_table(), [], faults)
        rows, bad_points = detection_rows(group, self._times())
        group = group.without(bad_points)
        groups = [group] if group.heads.num_rows else []
        return Part(rows, [raw_alerts(group) for group in groups], faults | bad_points, groups)

    def _decode(
        self, records: Records, fields: Sequence[str], careful: bool
    ) -> tuple[Group, Faults]:
        """Decode records of one schema, and leave out alerts that cannot be stored."""
        survey = records.schema.survey
        schema = records.schema
        columns = list(dict.fromkeys([*survey.head_columns(schema.fields, schema.own), *fields]))
        read = self._read_records if careful else self._read_without_images
        table, images = read(records, columns)
        group = Group(survey, table, survey.head(table), images, np.array(records.messages))
        faults = unusable(group, self._times(), self._programids)
        return group.without(faults), faults

    def _times(self) -> Times:
        return Times(self._latest_mjd())

    def _read_without_images(
        self, records: Records, columns: Sequence[str]
    ) -> tuple[pa.Table, Images]:
        """The columns and the images, which bypass the decoder."""
        tokens = ImageTokens(records.schema.survey.IMAGE_MAGIC, self._secret)
        pieces = [tokens.replace(record) for record in records.data]
        table, values = self._read(records.schema, pieces, columns)
        with suppress(Misplaced):
            return table, tokens.restore(values)
        return self._read_records(records, columns)

    def _read_records(self, records: Records, columns: Sequence[str]) -> tuple[pa.Table, Images]:
        """The columns and the images, all by the decoder."""
        return self._read(records.schema, [[record] for record in records.data], columns)

    def _read(
        self, schema: WriterSchema, pieces: list[list[Bytes]], columns: Sequence[str]
    ) -> tuple[pa.Table, Images]:
        survey = schema.survey
        sent = [name for name in survey.CUTOUT_FIELDS.values() if name in schema.fields]
        table = self._decoder.decode(schema, pieces, [*columns, *sent])
        images = {kind: survey.cutout(table, kind).to_pylist() for kind in survey.CUTOUT_FIELDS}
        return table.drop_columns(sent), images


def _faults(parts: Iterable[Part]) -> Faults:
    return {number: fault for part in parts for number, fault in part.faults.items()}


def _cannot_be_decoded(error: Exception) -> StampedeError:
    if isinstance(error, StampedeError) and not isinstance(error, DecoderFailed):
        return error
    return Undecodable(f"the message cannot be decoded: {_reason(error)}")


def _reason(error: Exception) -> str:
    """What went wrong, in one short line, for example a fractional id."""
    if isinstance(error, pa.ArrowException):
        return f"a value cannot be read: {str(error)[:300]}"
    return str(error) if isinstance(error, StampedeError) else f"{error!r:.300}"
