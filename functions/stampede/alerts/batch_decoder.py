"""Decodes a batch of messages into one table, and gives each bad message its error.

One bad message never harms the others: its error names the alert and the fault, and the table holds
the rows of the other messages.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.alerts.arrays import concat
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
from stampede.errors import StampedeError, Undecodable

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
    """

    rows: pa.Table
    faults: list[StampedeError | None]
    raw: list[RawAlerts]


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
    """

    def __init__(
        self, framing: Framing, decoder: Decoder, latest_mjd: Callable[[], float], secret: bytes
    ) -> None:
        self._framing = framing
        self._decoder = decoder
        self._latest_mjd = latest_mjd
        self._secret = secret

    def cutouts(self, messages: Sequence[Bytes], careful: bool = False) -> Decoded:
        """All cutouts: three rows per alert in the order of a pack, null if none was sent.

        Parameters
        ----------
        careful
            Check each message alone before the batch is decoded: for a batch that made the decoder
            fail.

        Raises
        ------
        DecoderFailed
            The batch as a whole cannot be decoded.
        """
        by_schema, faults = self._sort(messages, careful)
        tables = []
        with _unreadable_values():
            for records in by_schema:
                group, unusable_alerts = self._decode(records, [], careful)
                faults |= unusable_alerts
                if group.heads.num_rows:
                    table, bad_images = cutout_rows(group)
                    tables.append(table)
                    faults |= bad_images
            return Decoded(concat(CUTOUT, tables), _in_order(faults, messages), [])

    def detections(self, messages: Sequence[Bytes], careful: bool = False) -> Decoded:
        """All points of the light curves, the alerts' own and their histories', as `cutouts`."""
        by_schema, faults = self._sort(messages, careful)
        tables, raw = [], []
        with _unreadable_values():
            for records in by_schema:
                schema = records.schema
                images = schema.survey.CUTOUT_FIELDS.values()
                fields = [name for name in schema.fields if name not in images]
                group, unusable_alerts = self._decode(records, fields, careful)
                faults |= unusable_alerts
                if group.heads.num_rows:
                    tables.append(detection_rows(group))
                    raw.append(raw_alerts(group))
            return Decoded(concat(DETECTION, tables), _in_order(faults, messages), raw)

    def identities(
        self, messages: Sequence[Bytes], careful: bool = False
    ) -> tuple[dict[int, AlertIdentity], list[StampedeError | None]]:
        """By number of message the alert that it is; and per message None, or its error.

        Raises `DecoderFailed`, as `cutouts`.
        """
        by_schema, faults = self._sort(messages, careful)
        alerts = {}
        with _unreadable_values():
            for records in by_schema:
                group, unusable_alerts = self._decode(records, [], careful)
                faults |= unusable_alerts
                heads = group.heads.select(["alert_id", "object_id"]).to_pylist()
                for number, head in zip(group.messages.tolist(), heads, strict=True):
                    alerts[number] = AlertIdentity(group.survey.NAME, **head)
        return alerts, _in_order(faults, messages)

    def _sort(self, messages: Sequence[Bytes], careful: bool) -> tuple[list[Records], Faults]:
        """Take messages out of their frames and sort them by schema."""
        by_schema: dict[int, Records] = {}
        faults: Faults = {}
        for number, message in enumerate(messages):
            try:
                schema, record = self._framing.take(message)
                if not len(record):
                    raise Undecodable("the message has a frame but no record")
                if careful:
                    check(schema, record)
            except StampedeError as fault:
                faults[number] = fault
                continue
            records = by_schema.setdefault(id(schema), Records(schema, [], []))
            records.messages.append(number)
            records.data.append(record)
        return list(by_schema.values()), faults

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
        faults = unusable(group, self._latest_mjd())
        if faults:
            group = group.filter(np.array([number not in faults for number in records.messages]))
        return group, faults

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


def _in_order(faults: Faults, messages: Sequence[Bytes]) -> list[StampedeError | None]:
    return [faults.get(number) for number in range(len(messages))]


@contextmanager
def _unreadable_values() -> Iterator[None]:
    """Raise `DecoderFailed` for a value that fits no column, for example a fractional id."""
    try:
        yield
    except pa.ArrowException as error:
        raise DecoderFailed(f"a value cannot be read: {error}") from error
