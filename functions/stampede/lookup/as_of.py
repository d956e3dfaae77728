"""Light curves as the survey told them at an earlier time, or with an alert.

Each alert brings the history of its object as the survey knew it then. So what was known at a time
is in the packet of the object's latest alert up to that time. The table `detections` cannot tell
it: it has the latest version of each point, and points that came later.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stampede.alerts.columns import DETECTION
from stampede.errors import Damaged, TooLarge
from stampede.lookup import response_warnings
from stampede.lookup.errors import DamagedPacket, Gone, UnknownAlert, UnknownObject
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.packet_reader import PacketLocation
from stampede.lookup.points import in_time, measured
from stampede.runtime import lazy_arrow_compute as pc

ROUNDS = 0, 4, 16, 64
"""The latest detections of an object: up to which it is asked at once whether they were alerts."""
AT_ONCE = 16
"""Objects of which all points are in memory at once: few of them may be told in the end."""
NOT_KEPT = "no packet of that time is kept"
TOO_LARGE = "the packet of that time is too large to decode here"

TOLD = pa.schema(
    [
        pa.field("alert_id", pa.int64(), False, {"doc": "the alert whose packet told the point"}),
        *DETECTION,
    ]
)
"""The columns of what packets told."""


class Moment(NamedTuple):
    """A time of which one of the two says when it was.

    Attributes
    ----------
    mjd
        MJD TAI.
    alert_id
        The time of this alert of the object.
    """

    mjd: float | None = None
    alert_id: int | None = None


class Known(NamedTuple):
    """What was known of an object.

    Attributes
    ----------
    rows
        Table of `columns.DETECTION`, by time; withdrawn points too.
    alert_id
        The alert whose packet says it. None if no packet is kept, or it is too large: then these
        are the points of the table `detections` up to that time, and the response has a warning.
    """

    rows: pa.Table
    alert_id: int | None


class Told(NamedTuple):
    """What packets told, for many ids.

    Attributes
    ----------
    rows
        Table of `TOLD`, by the ids that were asked for, then time; withdrawn points too.
    known
        The ids of which a packet told.
    unreadable
        The ids of which a packet told that is not kept or cannot be read. It has no rows, and the
        response has a warning.
    """

    rows: pa.Table
    known: set[int | str]
    unreadable: set[int | str]


class _Alert(NamedTuple):
    """A detection, which may have been an alert."""

    alert_id: int
    survey: str
    mjd: float


def points_at(lookup: Lookup, object_id: str, moment: Moment) -> Known:
    """The points of an object that were known at a time.

    Raises
    ------
    UnknownObject
        Nothing was known of it.
    UnknownAlert
        The object has no such alert.
    DamagedPacket, StoreDown, SchemaRegistryDown
        The packet cannot be read.
    """
    rows = lookup.light_curves.of_object(object_id)
    alerts = _alerts(rows).get(object_id, [])
    if moment.alert_id is not None:
        alerts = [alert for alert in alerts if alert.alert_id == moment.alert_id]
        if not alerts:
            raise UnknownAlert(f"object {object_id} has no alert {moment.alert_id}")
        latest = alerts[0].mjd
    else:
        latest = moment.mjd or 0.0
        alerts = [alert for alert in alerts if alert.mjd <= latest]
        if not alerts:
            raise UnknownObject(f"nothing was known of object {object_id} at MJD {latest:g}")
    reason = NOT_KEPT
    if packet := _latest(lookup, {object_id: alerts})[object_id]:
        try:
            message = lookup.packets.without_images(packet)
            return Known(_points(lookup, packet, message), packet.alert_id)
        except TooLarge:
            reason = TOO_LARGE
    response_warnings.may_lack(f"{reason}: these are the latest versions of the points up to then")
    return Known(rows.filter(pc.less_equal(rows["mjd"], latest)), None)


def told_with(lookup: Lookup, alert_ids: Sequence[int]) -> Told:
    """The points of the object of each alert that the survey told with this alert.

    Raises `StoreDown`, `SchemaRegistryDown`.
    """
    packets = lookup.kept_packets(alert_ids)
    kept = {(packet.alert_id, packet.survey) for packet in packets}
    absent = lookup.by_alert(alert_ids).keys() - kept
    if absent:
        response_warnings.may_lack(NOT_KEPT)
    unreadable: set[int | str] = {alert_id for alert_id, _ in absent}
    for table in (lookup.packet_locations, lookup.cutouts):
        unreadable.update(table.unreadable(alert_ids))
    found: dict[tuple[int, str], pa.Table] = {}
    for packet, rows in _histories(lookup, packets):
        if rows is None:
            unreadable.add(packet.alert_id)
        else:
            found[packet.alert_id, packet.survey] = rows
    return Told(_in_order(found), {alert_id for alert_id, _ in found}, unreadable)


def told_until(lookup: Lookup, mjd: float, object_ids: Sequence[str]) -> Told:
    """The points of each object that the survey told with its latest alert up to a time, MJD TAI.

    Raises `StoreDown`, `SchemaRegistryDown`.
    """
    latest: dict[str, PacketLocation | None] = {}
    for begin in range(0, len(object_ids), AT_ONCE):
        alerts = _alerts(lookup.light_curves.of_objects(object_ids[begin : begin + AT_ONCE]))
        until = {name: [one for one in each if one.mjd <= mjd] for name, each in alerts.items()}
        latest |= _latest(lookup, {name: each for name, each in until.items() if each})
    unreadable: set[int | str] = {name for name, packet in latest.items() if packet is None}
    if unreadable:
        response_warnings.may_lack(NOT_KEPT)
    unreadable.update(lookup.detections.unreadable(object_ids))
    found: dict[str, pa.Table] = {}
    for packet, rows in _histories(lookup, [packet for packet in latest.values() if packet]):
        if rows is None:
            unreadable.add(packet.object_id)
        else:
            found[packet.object_id] = rows
    return Told(_in_order(found), {*found}, unreadable)


def _in_order(found: Mapping[Any, pa.Table]) -> pa.Table:
    return pa.concat_tables([found[name] for name in sorted(found)] or [TOLD.empty_table()])


def _alerts(rows: pa.Table) -> dict[str, list[_Alert]]:
    """By object its detections, each of which may have been an alert: the latest first."""
    own = measured(rows.select(["object_id", "source_id", "survey", "mjd", "forced", "limit"]))
    columns = (own[name].to_pylist() for name in ("object_id", "source_id", "survey", "mjd"))
    found: dict[str, list[_Alert]] = {}
    for object_id, *alert in zip(*columns, strict=True):
        found.setdefault(object_id, []).append(_Alert(*alert))
    for alerts in found.values():
        alerts.sort(key=lambda alert: (alert.mjd, alert.alert_id), reverse=True)
    return found


def _latest(
    lookup: Lookup, alerts: Mapping[str, Sequence[_Alert]]
) -> dict[str, PacketLocation | None]:
    """By object the packet of the first of these detections that came as an alert of it.

    None if its packet is not kept or its place cannot be read, or if none is known to have come:
    an earlier alert says less than was known.
    """
    found: dict[str, PacketLocation | None] = dict.fromkeys(alerts)
    left = {*alerts}
    for begin, end in pairwise(ROUNDS):
        ids = sorted({one.alert_id for name in left for one in alerts[name][begin:end]})
        packets = {(packet.alert_id, packet.survey): packet for packet in lookup.kept_packets(ids)}
        stored = lookup.by_alert(ids) if ids else {}
        unread = {*lookup.packet_locations.unreadable(ids), *lookup.cutouts.unreadable(ids)}
        for name in [*left]:
            for one in alerts[name][begin:end]:
                packet = packets.get(one[:2])
                versions = [packet] if packet else stored.get(one[:2], [])
                if any(each.object_id == name for each in versions):
                    found[name] = packet
                elif one.alert_id not in unread:
                    continue
                left.remove(name)
                break
    return found


def _histories(
    lookup: Lookup, packets: Sequence[PacketLocation]
) -> Iterator[tuple[PacketLocation, pa.Table | None]]:
    """What each packet told, a table of `TOLD`, in the order of packs; None if it cannot be read.

    Then the response has a warning.
    """
    for packet, message in lookup.packets.many_without_images(packets):
        rows, reason = None, "a packet is damaged"
        if isinstance(message, Gone):
            reason = NOT_KEPT
        elif not isinstance(message, DamagedPacket):
            try:
                points = _points(lookup, packet, message)
                alert_ids = pa.array(np.full(len(points), packet.alert_id))
                rows = pa.Table.from_arrays([alert_ids, *points.columns], schema=TOLD)
            except TooLarge:
                reason = TOO_LARGE
            except Damaged:
                pass
        if rows is None:
            response_warnings.may_lack(reason)
        yield packet, rows


def _points(lookup: Lookup, packet: PacketLocation, message: bytes) -> pa.Table:
    """The points of its object in a packet, by time. Raises as `StoredRecords.read`."""
    from stampede.lookup.packet_points import points_of  # few requests need fastavro

    points = points_of(lookup.records, message, lookup.rights.programids)
    return in_time(points.filter(pc.equal(points["object_id"], packet.object_id)))
