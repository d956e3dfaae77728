"""Compares the histories in the store with the alerts in it, some nights at a time.

A window of nights takes one pass over `detections` and one over the ids of alerts. Objects that
were last stored before a window begins hold nothing of it and are not read, so that the last nights
cost a read of what was stored since.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.alerts import surveys
from stampede.alerts.columns import KINDS
from stampede.errors import Damaged, NotFound, StoreDown
from stampede.handlers.histories.causes import UNEXPLAINED, Known
from stampede.handlers.histories.missing import COLUMNS, Group, Window, distinct
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.clock import mjd
from stampede.store.integrity.verification import twice
from stampede.store.objects.object_store import Objects
from stampede.store.parquet.range_file import ChangedObject
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, PACKETS
from stampede.store.tables.table import Table

MOST_ALERTS = 4_000_000
"""Alerts of a window, unless one night has more."""
MOST_MISSING = 5_000_000
"""Missing detections of a window, unless one night has more: 400 MB."""
MOST_IDS = 3
"""Ids that are kept of detections whose absence is explained."""
EARLIER = 2.0
"""Days by which a clock of the store may be behind, or an alert's time ahead."""
CHUNK_GROUPS = 64
"""Row groups that are read and looked at together: 128,000 rows."""
LOOKED_UP = 500
"""Ids that are looked up together. Each may be in another row group: 150 MB."""
_CACHE_BYTES = 8 << 20
_TRIES = 5
_AFTER_ALL = 1_000_000  # a night


Watch = Callable[[int], None]
"""Called often, with the rows of missing detections that are held. What it raises ends an audit."""


def unwatched(held: int) -> None:
    """Let an audit go on."""


class Stored(NamedTuple):
    """Which alerts the store has, as far as windows need it.

    Attributes
    ----------
    nights
        How many alerts each night has.
    first_mjd
        Of the first alert of each survey; -inf if an earlier one was not read.
    """

    nights: dict[int, int]
    first_mjd: dict[str, float]


class HistoriesAudit:
    """One audit of what histories know.

    Parameters
    ----------
    rights
        The observing programmes that are stored.
    most_alerts, most_missing
        How much a window may hold in memory.
    watch
        Is called after each small step.

    Attributes
    ----------
    came
        Detections that came as an alert, by survey and night, of the windows that `groups` ended.
    """

    def __init__(
        self,
        objects: Objects,
        rights: Rights = EVERYTHING,
        most_alerts: int = MOST_ALERTS,
        most_missing: int = MOST_MISSING,
        watch: Watch = unwatched,
    ) -> None:
        self.came = Counter[tuple[str, int]]()
        self._watch = watch
        self._detections = Table(objects, DETECTIONS, _CACHE_BYTES)
        self._ids = [Table(objects, spec, _CACHE_BYTES) for spec in (CUTOUTS, PACKETS)]
        self._objects, self._rights = objects, rights
        self._most_alerts, self._most_missing = most_alerts, most_missing

    def groups(self, since: int | None = None, until: int | None = None) -> Iterator[Group]:
        """Detections that never came as an alert, by night; from the first night that is stored.

        Parameters
        ----------
        since, until
            The first night, and the night before which to end, MJD.

        Raises
        ------
        Damaged
            Rows of a table cannot be read, or are lost: what they hold would count as missing.
        StoreDown
        """
        self._refresh()
        stored = self._stored(-np.inf if since is None else since - EARLIER)
        if not stored.nights:
            return
        since = min(stored.nights) if since is None else since
        until = _AFTER_ALL if until is None else until
        known = Known(stored.first_mjd, self._rights.programids, mjd(self._objects.now()))
        windows = [*pairwise(_cuts(stored.nights, since, until, self._most_alerts))][::-1]
        while windows:
            first, end = windows.pop()
            window = self._window(first, end, {*surveys.names(), *stored.first_mjd})
            if window is None:
                middle = _middle(stored.nights, first, end)
                windows += [(middle, end), (first, middle)]
                continue
            window.learn(known)
            self.came += window.came()
            yield from window.groups(self._confirmed(window.missing(known)), MOST_IDS)

    def close(self) -> None:
        """Stop the threads."""
        for table in (self._detections, *self._ids):
            table.close()

    def _refresh(self) -> None:
        """List the tables. `detections` first: ids that come meanwhile are no fault."""
        for table in (self._detections, *self._ids):
            table.refresh()
            for key, why, *_ in table.listing.view().gaps:
                raise Damaged(
                    f"{key}: {why}; what it holds would count as missing: "
                    "`stampede audit --deep --repair` first"
                )

    def _stored(self, oldest: float) -> Stored:
        """The nights with alerts, and the first alert of each survey.

        What was stored before `oldest`, MJD, is of earlier nights, and is not read.
        """
        nights, first = dict[int, int](), dict[str, float]()
        for table in self._ids:
            alerts = Counter[int]()
            for rows in scan(table, ("survey", "mjd"), oldest):
                self._watch(0)
                rows = rows.filter(pc.is_finite(rows["mjd"]))
                floors = np.floor(rows["mjd"].to_numpy()).astype(np.int64)
                found, counts = np.unique(floors, return_counts=True)
                alerts.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
                least = rows.group_by("survey").aggregate([("mjd", "min")]).to_pylist()
                for row in least:
                    survey, at = row["survey"], row["mjd_min"]
                    first[survey] = min(at, first.get(survey, np.inf))
            first |= dict.fromkeys(_earlier_surveys(table, oldest), -np.inf)
            each = len(KINDS) if table.spec is CUTOUTS else 1  # rows of an alert
            for night, count in alerts.items():
                nights[night] = max(-(-count // each), nights.get(night, 0))
        return Stored(nights, first)

    def _window(self, first: int, end: int, senders: set[str]) -> Window | None:
        """A window with all its rows; None if that is too much, and it has several nights.

        `senders` are the surveys that send alerts: no point of another came as one.
        """
        oldest = first - EARLIER
        window = Window(first, end, self._own(first, end))
        for rows in scan(self._detections, COLUMNS, oldest):
            window.add(rows.filter(pc.is_in(rows["survey"], pa.array(senders))))
            self._watch(window.rows)
            if window.kept > self._most_missing and end - first > 1:
                return None
        return window

    def _own(self, first: int, end: int) -> dict[str, np.ndarray]:
        """The ids of the alerts of these nights, and of those beside them, by survey."""
        found: dict[str, list[np.ndarray]] = {}
        for table in self._ids:
            for rows in scan(table, ("alert_id", "survey", "mjd"), first - 1 - EARLIER):
                self._watch(0)
                # A history may round a time to the other side of the end of a night.
                at = rows["mjd"].to_numpy()
                rows = rows.filter(pa.array((at >= first - 1) & (at < end + 1)))
                for survey in rows["survey"].unique().to_pylist():
                    ids = rows.filter(pc.equal(rows["survey"], survey))["alert_id"].to_numpy()
                    found.setdefault(survey, []).append(distinct(ids))
        # Popped, so that no more than the ids of one survey are there twice.
        return {survey: distinct(np.concatenate(found.pop(survey))) for survey in [*found]}

    def _confirmed(self, missing: pa.Table) -> pa.Table:
        """What did not come, without unexplained ones that are there when they are looked up.

        They came while the window was read, or under another night.
        """
        unexplained = np.asarray(missing["cause"]) == UNEXPLAINED
        if not unexplained.any():
            return missing
        self._refresh()
        there = np.zeros(missing.num_rows, bool)
        numbers = np.flatnonzero(unexplained)
        ids = missing["source_id"].to_numpy()
        names = missing["survey"].to_pylist()
        for begin in range(0, len(numbers), LOOKED_UP):
            self._watch(missing.num_rows)
            some = numbers[begin : begin + LOOKED_UP]
            held = set[tuple[str, int]]()
            for table in self._ids:
                rows = table.lookup(distinct(ids[some]).tolist())
                held |= {
                    *zip(rows["survey"].to_pylist(), rows["alert_id"].to_pylist(), strict=True)
                }
            there[some] = [(names[number], int(ids[number])) in held for number in some]
        return missing.filter(pa.array(~there))


def scan(table: Table, columns: Sequence[str], oldest: float) -> Iterator[pa.Table]:
    """These columns of all rows of a table, unsorted, in all versions; some even twice.

    Parameters
    ----------
    oldest
        Leave out what was stored before this time, MJD.

    Raises
    ------
    Damaged, StoreDown
    """
    done, tries = set[str](), 0
    while parts := [part for part in table.runs() if _is_due(part, oldest, done)]:
        for part in parts:
            try:
                yield from _rows(table, part, columns)
            except (NotFound, ChangedObject):  # merged meanwhile
                tries += 1
                if tries == _TRIES:
                    name = table.spec.name
                    raise StoreDown(f"runs of {name} vanish faster than they are read") from None
                table.refresh()
                break
            done.add(part.key)


def _earlier_surveys(table: Table, oldest: float) -> set[str]:
    """The surveys of what was stored before this time, MJD: those at both ends of each part.

    A table of ids is sorted by id, and each survey has ids of its own range. A survey that is not
    found counts as one whose first alert came later. Raises `Damaged`, `StoreDown`.
    """
    found = set[str]()
    for part in table.runs():
        if not part.rows or mjd(part.object.modified) >= oldest:
            continue
        try:
            file = table.reader.open(part)
            ends = sorted({min(file.numbers), max(file.numbers)})
            groups = twice(table.objects, part.key, partial(file.read, ends, ("survey",)))
        except (NotFound, ChangedObject):  # merged meanwhile
            continue
        for rows in groups:
            found.update(rows["survey"].unique().to_pylist())
    return found


def _is_due(part: RunInfo, oldest: float, done: set[str]) -> bool:
    return bool(part.rows) and part.key not in done and mjd(part.object.modified) >= oldest


def _rows(table: Table, part: RunInfo, columns: Sequence[str]) -> Iterator[pa.Table]:
    file = table.reader.open(part)
    numbers = list(file.numbers)
    for begin in range(0, len(numbers), CHUNK_GROUPS):
        some = numbers[begin : begin + CHUNK_GROUPS]
        read = partial(file.read, some, columns)
        yield pa.concat_tables(twice(table.objects, part.key, read)).combine_chunks()


def _cuts(nights: dict[int, int], since: int, until: int, most: int) -> list[int]:
    """The ends of windows, ascending: each but the last begins with a night that has alerts."""
    cuts, held = [since], 0
    for night in sorted(nights):
        if not since <= night < until:
            continue
        if held and held + nights[night] > most:
            cuts.append(night)
            held = 0
        held += nights[night]
    return [*dict.fromkeys([*cuts, until])]


def _middle(nights: dict[int, int], first: int, end: int) -> int:
    """A night within a window of several nights, with as many nights with alerts on both sides."""
    within = sorted(night for night in nights if first < night < end)
    return within[len(within) // 2] if within else first + 1
