"""An archive that says only how many alerts each night has."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from stampede.comparison.compare import Difference, Place, places_of
from stampede.comparison.id_tables import id_column
from stampede.errors import SetupError
from stampede.ingest.tables import TableFile, first_of, names_in, read_table
from stampede.proofs.night_proof import latest_of
from stampede.store.objects.object_store import Objects

NIGHTS = ("night", "key:key")
"""Names of the column with the night: an integer MJD, 2021-10-01, 20211001 or ztf_20211001.

`key:key` and `basic:raw` are those of Fink's statistics, its API's route `statistics`.
"""
COUNTS = ("alerts", "count", "basic:raw")
"""Names of the column with the number of alerts that were received."""
MJD_0 = date(1858, 11, 17).toordinal()
_NIGHT = re.compile(r"(?:([a-z]+)_)?(?:(\d{4})-?(\d\d)-?(\d\d)|(\d{5}))")


@dataclass(frozen=True)
class NightCounts:
    """How many alerts another archive has, by survey and night.

    Attributes
    ----------
    faults
        Nights of which it does not say a number.
    """

    counts: Mapping[Place, int]
    faults: list[str]

    @classmethod
    def of(cls, files: Sequence[TableFile], survey: str | None) -> "NightCounts | None":
        """The counts in tables; None if these are tables of ids.

        `survey` is that of nights that do not name one. Raises `SetupError`.
        """
        found: dict[Place, int] = {}
        faults: list[str] = []
        for each in files:
            names = names_in(each)
            night, count = (first_of(wanted, names) for wanted in (NIGHTS, COUNTS))
            if id_column(names) or night is None or count is None:
                return None
            for row in read_table(each).to_pylist():
                place = _place(each.name, row[night], row.get("survey") or survey)
                if row[count] is None:
                    faults.append(f"{each.name}: night {row[night]} has no number of alerts")
                else:
                    found[place] = found.get(place, 0) + int(row[count])
        return cls(found, faults)

    def differences(
        self, objects: Objects, surveys: set[str] | None, first: int, last: int
    ) -> Iterator[Difference]:
        """See `compare.differences`: of each night whether both have as many alerts."""
        for place in places_of(objects, self.counts, surveys, first, last):
            ours = max((each.statement["alerts"] for each in latest_of(objects, *place)), default=0)
            theirs = self.counts.get(place, 0)
            yield Difference(*place, counts=(ours, theirs) if ours != theirs else None)


def _place(file: str, night: Any, survey: str | None) -> Place:
    """The place that a value names. Raises `SetupError`."""
    match = _NIGHT.fullmatch(str(night))
    if match is None:
        raise SetupError(f"{file}: neither an MJD nor a date: {str(night)!r:.40}")
    named, year, month, day, mjd = match.groups()
    if not (survey := named or survey):
        raise SetupError(f"{file} does not say of which survey its nights are: give --survey")
    if mjd:
        return survey, int(mjd)
    try:
        return survey, date(int(year), int(month), int(day)).toordinal() - MJD_0
    except ValueError as error:
        raise SetupError(f"{file}: {night}: {error}") from None
