"""The locations of images in the store: byte ranges of packs, and places in their pages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from stampede.alerts.columns import KINDS
from stampede.lookup.errors import AmbiguousAlert, NoSuchCutout, UnknownAlert
from stampede.store.packs.alert_versions import numbers_shown
from stampede.store.parquet.writer import Range

GAP = 128 << 10
"""Most bytes between two ranges that one request reads. They are thrown away: the store needs
longer to begin another response than to send them (docs/adr/0028-fast-gets.md)."""
SPAN = 4 << 20
"""Most bytes in one request."""


class _OfASurvey(Protocol):
    @property
    def survey(self) -> str: ...


Located = TypeVar("Located", bound=_OfASurvey)


class CutoutLocation(NamedTuple):
    """Where one cutout is; from `pack` on all are None if the survey sent none of this kind.

    `alerts.columns.CUTOUT_LOCATION` describes the attributes.
    """

    alert_id: int
    survey: str
    kind: str
    object_id: str
    mjd: float
    pack: str | None
    page_offset: int
    page_length: int
    start: int
    length: int
    tail_offset: int | None
    tail_length: int | None
    crc32: int
    message_crc32: int | None

    @property
    def page(self) -> Range:
        """Where the alert's page is in the pack."""
        return Range(self.page_offset, self.page_length)

    @property
    def tail(self) -> Range | None:
        """Where the file's tail is in the pack; None if it has none."""
        return None if self.tail_offset is None else Range(self.tail_offset, self.tail_length or 0)


class ThumbnailLocation(NamedTuple):
    """Where the thumbnail of one alert is."""

    alert_id: int
    survey: str
    pack: str
    offset: int
    length: int
    crc32: int


def cutout_locations(rows: pa.Table, survey: str | None = None) -> list[CutoutLocation]:
    """The locations in rows of the table `cutouts`; see `locations_of`."""
    # An array becomes a list in a quarter of the time that a column of several chunks takes. To
    # select the columns by name would take as long again: the schema has them in this order.
    values = (
        row
        for batch in rows.combine_chunks().to_batches()
        for row in zip(*[column.to_pylist() for column in batch.columns], strict=True)
    )
    return locations_of(values, survey)


def locations_of(
    values: Iterable[Sequence[Any]], survey: str | None = None
) -> list[CutoutLocation]:
    """The locations in rows of the table `cutouts`, each as values in the order of its columns.

    Only those of `survey` unless it is None. Of an alert that came in several versions, those of
    each.
    """
    found = map(CutoutLocation._make, values)
    return [location for location in found if survey in (None, location.survey)]


def shown(locations: list[CutoutLocation], expired: Callable[[str], bool]) -> list[CutoutLocation]:
    """Of each alert the locations of one version, as `store.packs.alert_versions` chooses."""
    versions = ((one.alert_id, one.survey, one.message_crc32) for one in locations)
    first = next(versions, None)
    if all(version == first for version in versions):  # as of nearly every single alert
        return locations
    chosen = numbers_shown(
        ((one.alert_id, one.survey) for one in locations),
        (one.message_crc32 for one in locations),
        [one.pack for one in locations],
        expired,
    )
    if len(chosen) == len(locations):
        return locations
    return [locations[number] for number in chosen]


def of_message(locations: Sequence[CutoutLocation], crc32: int) -> dict[str, CutoutLocation]:
    """By kind the cutouts of one alert that came in the message with this CRC-32.

    A row that does not say its message was written before rows did.
    """
    known = {None: 0, crc32: 1}
    found = [location for location in locations if location.message_crc32 in known]
    found.sort(key=lambda location: known[location.message_crc32])
    return {location.kind: location for location in found}


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


def grouped_by_request(ranges: Iterable[Range]) -> Iterator[list[Range]]:
    """Distinct ranges of a pack that one request can read, ascending.

    No gap in a group is over `GAP`, and no group of two or more is over `SPAN`.
    """
    group: list[Range] = []
    for one in sorted(set(ranges)):
        if group and (
            one.offset - (group[-1].offset + group[-1].length) > GAP
            or one.offset + one.length - group[0].offset > SPAN
        ):
            yield group
            group = []
        group.append(one)
    if group:
        yield group
