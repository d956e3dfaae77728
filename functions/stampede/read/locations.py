"""The locations of images in the store: byte ranges of packs."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from stampede.alerts.columns import KINDS
from stampede.read.errors import AmbiguousAlert, NoSuchCutout, UnknownAlert

GAP = 16 << 10
"""Most bytes between two cutouts that one request reads. They are thrown away: a second request
would take 2 ms, in which about as many bytes arrive."""
SPAN = 4 << 20
"""Most bytes in one request."""


class _OfASurvey(Protocol):
    @property
    def survey(self) -> str: ...


Located = TypeVar("Located", bound=_OfASurvey)


class CutoutLocation(NamedTuple):
    """Where one cutout is; `pack` is None if the survey sent no cutout of this kind."""

    alert_id: int
    survey: str
    kind: str
    object_id: str
    mjd: float
    pack: str | None
    offset: int
    length: int
    crc32: int | None


class ThumbnailLocation(NamedTuple):
    """Where the thumbnail of one alert is."""

    alert_id: int
    survey: str
    pack: str
    offset: int
    length: int
    crc32: int | None


def cutout_locations(rows: pa.Table, survey: str | None = None) -> list[CutoutLocation]:
    """The locations in rows of the table `cutouts`; only those of `survey` unless it is None."""
    columns = (rows[name].to_pylist() for name in CutoutLocation._fields)
    locations = map(CutoutLocation._make, zip(*columns, strict=True))
    return [location for location in locations if survey in (None, location.survey)]


def thumbnail_locations(rows: pa.Table) -> list[ThumbnailLocation]:
    """The locations in rows of the table `thumbnails`."""
    columns = (rows[name].to_pylist() for name in ThumbnailLocation._fields)
    return [ThumbnailLocation(*values) for values in zip(*columns, strict=True)]


def of_one_alert(
    locations: list[CutoutLocation], alert_id: int, survey: str | None
) -> list[CutoutLocation]:
    """The locations of one alert's cutouts, in the order of `KINDS`.

    Raises
    ------
    UnknownAlert
        If there are none.
    AmbiguousAlert
        If they belong to more than one survey.
    """
    if not locations:
        where = f"of survey {survey} " if survey else ""
        raise UnknownAlert(f"no alert {alert_id} {where}is stored")
    return by_kind(of_one_survey(locations, alert_id))


def of_one_survey(locations: Sequence[Located], alert_id: int) -> Sequence[Located]:
    """These locations of an alert. Raises `AmbiguousAlert` if more than one survey has it."""
    if len({location.survey for location in locations}) > 1:
        raise AmbiguousAlert("survey", f"alert {alert_id} is in more than one survey: add ?survey=")
    return locations


def of_kind(locations: Sequence[CutoutLocation], kind: str) -> CutoutLocation:
    """The location of one alert's cutout of that kind. Raises `NoSuchCutout`."""
    for location in locations:
        if location.kind == kind and location.pack is not None:
            return location
    raise no_such_cutout(locations[0].alert_id, kind)


def no_such_cutout(alert_id: int, kind: str) -> NoSuchCutout:
    """The error for a cutout that the survey did not send."""
    return NoSuchCutout(f"the survey sent no {kind} cutout with alert {alert_id}")


def by_kind(locations: Sequence[CutoutLocation]) -> list[CutoutLocation]:
    """Locations in the order of `KINDS`."""
    return sorted(locations, key=lambda location: KINDS.index(location.kind))


def grouped_by_request(
    locations: Sequence[CutoutLocation],
) -> Iterator[tuple[str, list[CutoutLocation]]]:
    """Packs, each with cutouts that one request can read, ascending by pack and offset.

    No gap in a group is over `GAP`, and no group is over `SPAN`. Locations without a pack are
    left out.
    """
    in_packs = sorted((one.pack, one.offset, one) for one in locations if one.pack is not None)
    for pack, in_one_pack in groupby(in_packs, itemgetter(0)):
        group: list[CutoutLocation] = []
        for _, offset, location in in_one_pack:
            if group and (
                offset - (group[-1].offset + group[-1].length) > GAP
                or offset + location.length - group[0].offset > SPAN
            ):
                yield pack, group
                group = []
            group.append(location)
        yield pack, group
