"""Decodes a batch of messages into one table, and gives each bad message its error.

One bad message never harms the others: its error names the alert and the fault, and the table holds
the rows of the other messages.

Everything done to a message's bytes is done under a guard, which may end the process. Before each
step of an isolated decoding, `Suspect` is told which messages the step reads: if the process ends,
one of them is to blame.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from stampede.alerts.arrays import concat
from stampede.alerts.batch_parts import (
    AlertIdentity,
    Decoded,
    DecodedAlerts,
    Guards,
    Images,
    Part,
    Read,
    Records,
    Suspect,
)
from stampede.alerts.bounds import Times
from stampede.alerts.columns import CUTOUT, DETECTION, MOVING
from stampede.alerts.decoder import Decoder, check
from stampede.alerts.framing import Framing, WriterSchema
from stampede.alerts.history_cut import without_rows
from stampede.alerts.image_tokens import ImageTokens, Misplaced
from stampede.alerts.isolation import Isolation
from stampede.alerts.moving.observations import observations_of
from stampede.alerts.schema_groups import (
    ORIGIN,
    Faults,
    MixedProgrammes,
    SchemaGroup,
    cutout_rows,
    detection_rows,
    raw_alerts,
    unusable,
)
from stampede.errors import DecoderFailed, Overloaded, StampedeError, Undecodable
from stampede.runtime.decompression import Bytes


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
        Observing programmes whose alerts and history rows are stored, of a survey that has some
        (ZTF's public: 1).
    most_bytes
        Bytes of records that are decoded at once; one record may exceed them. Each message is
        bounded, but kilobytes may decompress to megabytes: the sum must be bounded too.
    """

    def __init__(
        self,
        framing: Framing,
        decoder: Decoder,
        latest_mjd: Callable[[], float],
        secret: bytes,
        guards: Guards | None = None,
        programids: frozenset[int] = frozenset({1}),
        most_bytes: float = math.inf,
    ) -> None:
        self._framing = framing
        self._decoder = decoder
        self._latest_mjd = latest_mjd
        self._secret = secret
        self._guards = guards or Guards()
        self._programids = programids
        self._most_bytes = most_bytes

    def cutouts(
        self,
        messages: Sequence[Bytes],
        isolation: Isolation = Isolation.FAST,
        suspect: Suspect = lambda numbers: None,
    ) -> Decoded:
        """All cutouts: three rows per alert in the order of a pack, null if none was sent.

        Only of the first messages, if the records of all have more than `most_bytes`.

        Parameters
        ----------
        isolation
            More than `Isolation.FAST` for a batch that made the decoder fail. Then a message that
            cannot be decoded has a fault, whatever the reason.
        suspect
            Called before each step of an isolated decoding, and with none after the last.

        Raises
        ------
        DecoderFailed
            The batch as a whole cannot be decoded.
        """
        parts, faults = self._all_parts(messages, isolation, suspect, self._cutouts)
        return _decoded(parts, faults, CUTOUT)

    def detections(
        self,
        messages: Sequence[Bytes],
        isolation: Isolation = Isolation.FAST,
        suspect: Suspect = lambda numbers: None,
    ) -> Decoded:
        """All points of the light curves, the alerts' own and their histories', as `cutouts`.

        Without the points of observing programmes that are not stored.
        """

        def read(records: Records, isolated: bool) -> Part:
            return self._points(records, *self._whole(records, isolated), messages)

        parts, faults = self._all_parts(messages, isolation, suspect, read)
        return _decoded(parts, faults, DETECTION)

    def alerts(
        self,
        messages: Sequence[Bytes],
        isolation: Isolation = Isolation.FAST,
        suspect: Suspect = lambda numbers: None,
    ) -> DecodedAlerts:
        """What `cutouts` and `detections` return, by reading each record once.

        A message that cannot be decoded for one of them has its error in both.
        """

        def read(records: Records, isolated: bool) -> Part:
            group, faults = self._whole(records, isolated)
            points = self._points(records, group, faults, messages)
            return points._replace(cutouts=_images(group, faults))

        parts, faults = self._all_parts(messages, isolation, suspect, read)
        images = [part.cutouts or Part(CUTOUT.empty_table(), [], part.faults) for part in parts]
        return DecodedAlerts(_decoded(images, faults, CUTOUT), _decoded(parts, faults, DETECTION))

    def identities(
        self,
        messages: Sequence[Bytes],
        isolation: Isolation = Isolation.FAST,
        suspect: Suspect = lambda numbers: None,
    ) -> tuple[dict[int, AlertIdentity], list[StampedeError | None]]:
        """By number of message the alert that it is; and per message None, or its error.

        Only of the first messages, and raises `DecoderFailed`, as `cutouts`.
        """
        alerts: dict[int, AlertIdentity] = {}

        def read(records: Records, isolated: bool) -> Part:
            group, faults = self._decode(records, [], isolated)
            heads = group.heads.select(["alert_id", "object_id"]).to_pylist()
            for number, head in zip(group.messages.tolist(), heads, strict=True):
                alerts[number] = AlertIdentity(group.survey.NAME, **head)
            return Part(CUTOUT.empty_table(), [], faults)

        parts, unframed = self._all_parts(messages, isolation, suspect, read)
        return alerts, _decoded(parts, unframed, CUTOUT).faults

    def _all_parts(
        self, messages: Sequence[Bytes], isolation: Isolation, suspect: Suspect, read: Read
    ) -> tuple[list[Part], list[StampedeError | None]]:
        """What `read` makes of the first messages; and of each of these None, or why it has none.

        The parts have faults of their own.
        """
        by_schema, faults, count = self._sort(messages, isolation, suspect)
        parts: list[Part] = []
        for records in by_schema:
            if isolation is Isolation.ALONE:
                for one in records.split(1):
                    for part in self._parts(one, isolation, suspect, read):
                        faults |= part.lost
                records = records.without(faults)
            parts += self._parts(records, isolation, suspect, read)
        if isolation is not Isolation.FAST:
            suspect([])  # what goes wrong from here on is no single message's fault
        return parts, [faults.get(number) for number in range(count)]

    def _sort(
        self, messages: Sequence[Bytes], isolation: Isolation, suspect: Suspect
    ) -> tuple[list[Records], Faults, int]:
        """Take messages out of their frames and sort them by schema; of how many messages."""
        by_schema: dict[int, Records] = {}
        faults: Faults = {}
        held = 0
        fast = isolation is Isolation.FAST
        with self._guards.batch(sum(map(len, messages))) if fast else nullcontext():
            for number, message in enumerate(messages):
                if held >= self._most_bytes:
                    return list(by_schema.values()), faults, number
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
                held += len(record)
        return list(by_schema.values()), faults, len(messages)

    def _framed(self, message: Bytes, checked: bool) -> tuple[WriterSchema, Bytes]:
        with self._guards.message(len(message)) if checked else nullcontext():
            schema, record = self._framing.take(message)
        if not len(record):
            raise Undecodable("the message has a frame but no record")
        if checked:
            with self._guards.message(len(record)):
                check(schema, record)
        return schema, record

    def _parts(
        self, records: Records, isolation: Isolation, suspect: Suspect, read: Read
    ) -> Iterator[Part]:
        """Decode records: as one, or, in an isolated decoding that fails, their halves."""
        if not records.messages:
            return
        one = len(records.messages) == 1
        guards = self._guards
        fast = isolation is Isolation.FAST and not records.schema.by_record
        guard = guards.batch if fast else guards.message if one else guards.isolated
        if isolation is not Isolation.FAST:
            suspect(records.messages)
        try:
            with guard(sum(map(len, records.data))):
                part = read(records, isolation is not Isolation.FAST)
            yield part
            return
        except Overloaded:  # no room in the spool: no message is at fault
            raise
        except Exception as error:
            if isolation is Isolation.FAST:
                raise DecoderFailed(_reason(error)) from error
            if one:
                yield Part(pa.table({}), [], {records.messages[0]: _cannot_be_decoded(error)})
                return
        for half in records.split((len(records.messages) + 1) // 2):
            yield from self._parts(half, isolation, suspect, read)

    def _cutouts(self, records: Records, isolated: bool) -> Part:
        return _images(*self._decode(records, [], isolated))

    def _whole(self, records: Records, isolated: bool) -> tuple[SchemaGroup, Faults]:
        """Decode all fields of records, as `_decode`."""
        schema = records.schema
        images = schema.survey.CUTOUT_FIELDS.values()
        fields = [name for name in schema.fields if name not in images]
        return self._decode(records, fields, isolated)

    def _points(
        self, records: Records, group: SchemaGroup, faults: Faults, messages: Sequence[Bytes]
    ) -> Part:
        """The points of a group of records; `faults` are those of records that it lacks."""
        schema = records.schema
        if not group.heads.num_rows:
            return Part(DETECTION.empty_table(), [], faults)
        points = detection_rows(group, self._times(), self._programids)
        faults = faults | points.faults
        group = group.without(points.faults)
        if not group.heads.num_rows:
            return Part(points.rows, [], faults)
        if points.programids:
            group = self._mixed(group, points.programids, messages)
        types = schema.columns if schema.may_differ else None
        raw = raw_alerts(group, schema.left_out, types)
        moving = observations_of(group.survey, group.table, group.heads, points.rows)
        return Part(points.rows, raw, faults, [group], moving=moving)

    def _mixed(
        self, group: SchemaGroup, found: Mapping[int, frozenset[int]], messages: Sequence[Bytes]
    ) -> SchemaGroup:
        """The group with what is stored of alerts whose points are of the programmes `found`."""
        own = dict(zip(group.messages.tolist(), group.heads["programid"].to_pylist(), strict=True))
        mixed = {}
        for number in own.keys() & found.keys():
            mixed[number] = MixedProgrammes(found[number] & self._programids)
            if not found[number] <= self._programids:
                schema, record = self._framing.take(messages[number])
                cut, rows = without_rows(schema, record, own[number], self._programids)
                message = self._framing.replaced(messages[number], cut)
                mixed[number] = mixed[number]._replace(message=message, record=cut, rows_cut=rows)
        return group._replace(mixed=mixed)

    def _decode(
        self, records: Records, fields: Sequence[str], isolated: bool
    ) -> tuple[SchemaGroup, Faults]:
        """Decode records of one schema, and leave out alerts that cannot be stored."""
        survey = records.schema.survey
        schema = records.schema
        columns = list(dict.fromkeys([*survey.head_columns(schema.fields, schema.own), *fields]))
        read = self._read_records if isolated else self._read_without_images
        table, images = read(records, columns)
        crc32s = np.array([isal_zlib.crc32(record) for record in records.data], np.uint32)
        numbers = np.array(records.messages)
        heads = survey.head(table)
        group = SchemaGroup(survey, table, heads, images, numbers, records.data, crc32s)
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


def _decoded(
    parts: Sequence[Part], faults: Sequence[StampedeError | None], schema: pa.Schema
) -> Decoded:
    """The parts as one; `faults` are those of messages that are in no part."""
    of_parts = {number: fault for part in parts for number, fault in part.faults.items()}
    rows = concat(schema, [part.rows for part in parts if part.rows.num_rows])
    raw = [alerts for part in parts for alerts in part.raw]
    groups = [group for part in parts for group in part.groups]
    origins = concat(ORIGIN, [part.origins for part in parts if part.origins is not None])
    of_messages = [of_parts.get(number, fault) for number, fault in enumerate(faults)]
    moving = concat(MOVING, [part.moving for part in parts if part.moving is not None])
    return Decoded(rows, of_messages, raw, groups, origins, moving)


def _images(group: SchemaGroup, faults: Faults) -> Part:
    """The cutouts of a group of records; `faults` are those of records that it lacks."""
    if not group.heads.num_rows:
        return Part(CUTOUT.empty_table(), [], faults)
    rows, bad_images, origins = cutout_rows(group)
    return Part(rows, [], faults | bad_images, origins=origins)


def _cannot_be_decoded(error: Exception) -> StampedeError:
    if isinstance(error, StampedeError) and not isinstance(error, DecoderFailed):
        return error
    return Undecodable(f"the message cannot be decoded: {_reason(error)}")


def _reason(error: Exception) -> str:
    """What went wrong, in one short line, for example a fractional id."""
    if isinstance(error, pa.ArrowException):
        return f"a value cannot be read: {str(error)[:300]}"
    return str(error) if isinstance(error, StampedeError) else f"{error!r:.300}"
