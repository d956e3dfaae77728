"""A batch of messages in, one table and a verdict on every message out.

One bad message never harms its neighbours: its verdict is the error that names the alert and
the fault, and the rows of the others are in the table.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import compress
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.alerts import columns
from stampede.alerts.arrays import concat, table_of
from stampede.alerts.container import Bytes
from stampede.alerts.decoder import Decoder, DecoderFailed, check
from stampede.alerts.framing import Framing, WriterSchema
from stampede.alerts.image_tokens import ImageTokens, Misplaced
from stampede.alerts.surveys import rubin, ztf
from stampede.errors import StampedeError, Undecodable, Unusable

SURVEYS: dict[str, ModuleType] = {"lsst": rubin, "ztf": ztf}
FITS_BEGINS = b"SIMPLE  ="


class RawAlerts(NamedTuple):
    """Alerts of one schema as the survey names and nests their columns.

    One row per alert, by id: everything in it but the cutouts and the history, whose points
    were alerts of their own.

    Attributes
    ----------
    night
        Of the latest of them, MJD TAI.
    """

    survey: str
    night: int
    table: pa.Table


class Decoded(NamedTuple):
    """What came of a batch.

    Attributes
    ----------
    rows
        Table of `columns.CUTOUT` or `columns.DETECTION`: all good messages' rows.
    faults
        Per message None, or the error it is answered with.
    raw
        With detections, the alerts in the survey's own columns, a table per schema.
    """

    rows: pa.Table
    faults: list[StampedeError | None]
    raw: list[RawAlerts]


class Group(NamedTuple):
    """Messages of one schema, decoded; `table` is without their images."""

    survey: str
    table: pa.Table
    heads: pa.Table
    images: dict[str, list[Bytes | None]]  # by kind
    places: np.ndarray  # which message each row came from


class BatchDecoder:
    """Reads batches of alerts.

    Parameters
    ----------
    framing, decoder
        How messages are taken out of their frames, and records decoded.
    latest_mjd
        Gives the MJD TAI after which an alert's time is a fault.
    """

    def __init__(self, framing: Framing, decoder: Decoder, latest_mjd: Callable[[], float]) -> None:
        self._framing = framing
        self._decoder = decoder
        self._latest_mjd = latest_mjd

    def cutouts(self, messages: Sequence[Bytes], careful: bool = False) -> Decoded:
        """All cutouts, three rows per alert in the order of a pack, null where none was sent.

        `careful` checks each message alone first: for batches that made the decoder fail.
        Raises `DecoderFailed` where the batch as a whole cannot be decoded.
        """
        faults: list[StampedeError | None] = [None] * len(messages)
        groups = self._groups(messages, faults, careful, lambda schema, m: [])
        with _unreadable():
            rows = [_cutouts(group, faults) for group in groups]
            return Decoded(concat(columns.CUTOUT, rows), faults, [])

    def detections(self, messages: Sequence[Bytes], careful: bool = False) -> Decoded:
        """All points of the light curves, the alerts' own and their histories'."""
        faults: list[StampedeError | None] = [None] * len(messages)
        groups = self._groups(messages, faults, careful, _all_but_cutouts)
        rows, raw = [], []
        with _unreadable():
            for group in groups:
                rows.append(_detections(group))
                raw.append(_raw(group))
            return Decoded(concat(columns.DETECTION, rows), faults, raw)

    def _groups(
        self,
        messages: Sequence[Bytes],
        faults: list[StampedeError | None],
        careful: bool,
        wanted: Callable[[WriterSchema, ModuleType], list[str]],
    ) -> Iterator[Group]:
        """Frame, sort by schema, decode, and leave out alerts that cannot be stored."""
        by_schema: dict[int, tuple[WriterSchema, list[int], list[Bytes]]] = {}
        for place, message in enumerate(messages):
            try:
                schema, record = self._framing.take(message)
                if not len(record):
                    raise Undecodable("the message has a frame but no record")
                if careful:
                    check(schema, record)
            except StampedeError as fault:
                faults[place] = fault
                continue
            _, places, records = by_schema.setdefault(id(schema), (schema, [], []))
            places.append(place)
            records.append(record)
        for schema, places, records in by_schema.values():
            module = SURVEYS[schema.survey]
            names = dict.fromkeys([*module.head_columns(schema), *wanted(schema, module)])
            table, images = self._decoded(schema, records, list(names), careful)
            heads = module.head(table)
            good = self._usable(heads, np.array(places), faults)
            if not good.all():
                mask = pa.array(good)
                table, heads = table.filter(mask).combine_chunks(), heads.filter(mask)
                images = {kind: [*compress(of, good)] for kind, of in images.items()}
            if heads.num_rows:
                heads, whence = heads.combine_chunks(), np.array(places)[good]
                yield Group(schema.survey, table, heads, images, whence)

    def _decoded(
        self, schema: WriterSchema, records: list[Bytes], names: list[str], careful: bool
    ) -> tuple[pa.Table, dict[str, list[Bytes | None]]]:
        """The named columns, and the images by kind, which pass the decoder by if all is well."""
        module = SURVEYS[schema.survey]
        sent = [name for name in module.CUTOUTS.values() if name in schema.fields]

        def decode(pieces: list[list[Bytes]]) -> tuple[pa.Table, dict[str, list[Bytes | None]]]:
            table = self._decoder.decode(schema, pieces, [*names, *sent])
            images = {kind: module.cutout(table, kind).to_pylist() for kind in module.CUTOUTS}
            return table.drop_columns(sent), images

        if not careful:
            lifting = ImageTokens(schema.survey)
            table, images = decode([lifting.lift(record) for record in records])
            with suppress(Misplaced):
                return table, lifting.give_back(images)
        return decode([[record] for record in records])

    def _usable(
        self, heads: pa.Table, places: np.ndarray, faults: list[StampedeError | None]
    ) -> np.ndarray:
        """Which alerts have all that storing needs; the others get their fault."""
        latest = self._latest_mjd()
        missing = {
            "it has no id": heads["alert_id"].is_null(),
            "it has no object id": heads["object_id"].is_null(),
            "it has no observation time": heads["mjd"].is_null(),
            f"its observation time is in the future (after MJD {latest:.1f})": pc.fill_null(
                pc.greater(heads["mjd"], latest), False
            ),
        }
        good = np.ones(len(places), bool)
        for reason, mask in missing.items():
            for row in np.flatnonzero(mask.to_numpy() & good).tolist():
                good[row] = False
                faults[places[row]] = Unusable(f"{_name(heads, row)} cannot be stored: {reason}")
        return good


def _name(heads: pa.Table, row: int) -> str:
    alert_id, object_id = heads["alert_id"][row].as_py(), heads["object_id"][row].as_py()
    mjd = heads["mjd"][row].as_py()
    return f"alert {alert_id} of object {object_id} at MJD {mjd}"


@contextmanager
def _unreadable() -> Iterator[None]:
    """Some value fits no column, an id that is no integer say: which alert's, is not told here."""
    try:
        yield
    except pa.ArrowException as error:
        raise DecoderFailed(f"a value cannot be read: {error}") from error


def _all_but_cutouts(schema: WriterSchema, module: ModuleType) -> list[str]:
    return [name for name in schema.fields if name not in module.CUTOUTS.values()]


def _detections(group: Group) -> pa.Table:
    """All points of a group but history rows without an id or a time, which no plot can show."""
    rows = SURVEYS[group.survey].detections(group.table, group.heads)
    usable = pc.and_(rows["source_id"].is_valid(), rows["mjd"].is_valid())
    return rows.filter(usable) if pc.any(pc.invert(usable)).as_py() else rows


def _raw(group: Group) -> RawAlerts:
    history = SURVEYS[group.survey].HISTORY
    own = [name for name in group.table.column_names if "." not in name and name not in history]
    order = pc.sort_indices(group.heads["alert_id"])
    night = int(pc.max(group.heads["mjd"]).as_py())
    return RawAlerts(group.survey, night, group.table.select(own).take(order))


def _cutouts(group: Group, faults: list[StampedeError | None]) -> pa.Table:
    names = group.heads["alert_id"].to_pylist()
    files: dict[str, list[bytes | None]] = {}
    for kind in columns.KINDS:
        files[kind] = [
            _stored(data, name, kind, place, group.survey, faults)
            for data, name, place in zip(group.images[kind], names, group.places, strict=True)
        ]
    # In the order of a pack, so that its writer need not copy all images once more.
    order, kinds = np.argsort(names, kind="stable"), sorted(columns.KINDS)
    good = [row for row in order.tolist() if faults[group.places[row]] is None]
    rows = np.repeat(good, len(kinds)).astype(np.int64)
    heads = group.heads.take(pa.array(rows))
    fits = [files[kind][row] for row in good for kind in kinds]
    return table_of(
        columns.CUTOUT,
        {
            **{name: heads[name] for name in ("alert_id", "object_id", "mjd", "band", "ra", "dec")},
            "survey": group.survey,
            "kind": pa.array(kinds * len(good), pa.string()),
            "fits": pa.array(fits, pa.binary()),
        },
        len(rows),
    )


def _stored(data, name, kind, place, survey, faults) -> bytes | None:
    """The gzip file to store of a cutout as sent; what is no FITS file is the alert's fault."""
    if data is None or faults[place] is not None:
        return None
    if survey == "lsst":
        begin = bytes(data[: len(FITS_BEGINS)])
        if begin == FITS_BEGINS:
            return rubin.compress(data)
    else:
        try:
            begin = zlib.decompressobj(31).decompress(data, len(FITS_BEGINS))
        except zlib.error:
            begin = bytes(data[:8])
        if begin == FITS_BEGINS:
            return bytes(data)  # not a view: pyarrow 26 never lets go of one it made an array of
    faults[place] = Unusable(
        f"the {kind} cutout of alert {name} is not FITS: it begins with 0x{begin[:8].hex()}"
    )
    return None
