"""What keeps the store in order, as the store itself shows it: merges, rounds, the second site."""

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from stampede.config.settings import Settings
from stampede.errors import Damaged, NotFound, StampedeError
from stampede.lookup import response_warnings
from stampede.lookup.histories_summary import FOLDER as HISTORIES
from stampede.lookup.lookup import Lookup
from stampede.lookup.ttl_cache import TtlCache
from stampede.store.integrity.acceptances.decision import is_decision
from stampede.store.integrity.dead_letter_offsets import DEAD_LETTERS
from stampede.store.integrity.reconcile_state import PREFIX as RECONCILE
from stampede.store.integrity.scrub_state import PREFIX as SCRUB
from stampede.store.integrity.verification import twice
from stampede.store.integrity.verified_objects import read_columns
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.open import open_replica
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import prefix
from stampede.store.store_checks import FOLDER as CHECKS
from stampede.telemetry.logs import get_logger

log = get_logger()

MAX_AGE = 30.0
"""Seconds: a reading takes a listing of what is small, and two requests for each object of dead
letters that is shown."""
PAUSE = 300.0
"""Seconds until the second site is asked again after it did not answer."""
LETTERS, LETTER_OBJECTS, LISTED = 50, 20, 10_000
"""Most dead letters that are shown, objects that are read for them, and objects that are listed."""
LATE = timedelta(minutes=15)
"""Age from which a run that the second site lacks counts as late."""
_COLUMNS = ("topic", "partition", "offset", "code", "reason")
_REASON = 300  # characters of a reason
_EVENT = re.compile(r"event \S+ of \S+: ")  # at the beginning: the position says as much


class Letter(NamedTuple):
    """A dead letter: its position in Kafka, None if it has none, and why it was refused."""

    table: str
    topic: str | None
    partition: int | None
    offset: int | None
    code: str | None
    reason: str
    written: datetime


class Merges(NamedTuple):
    """The runs of a table, those of them that were never merged, and the time of the last merge."""

    table: str
    runs: int
    small: int
    last: datetime | None


class Round(NamedTuple):
    """A function that goes on from pass to pass, and when it saved how far it is."""

    name: str
    saved: datetime


class Site(NamedTuple):
    """The second site: runs that it lacks, those of them that are late, or why it is not known."""

    where: str
    lacking: int = 0
    late: int = 0
    error: str = ""


class Upkeep(NamedTuple):
    """One reading. `more_letters` says whether there are more than `letters`, and `damaged_letters`
    how many objects of dead letters cannot be read."""

    letters: list[Letter]
    more_letters: bool
    damaged_letters: int
    merges: list[Merges]
    rounds: list[Round]
    site: Site | None


class UpkeepCache:
    """Reads it again if the last reading is older than `MAX_AGE`. Use it in one thread."""

    def __init__(self, lookup: Lookup, settings: Settings) -> None:
        self._lookup, self._settings = lookup, settings
        self._letters = Letters(lookup.objects)
        self._second: Objects | None = None
        self._silent: Site | None = None
        self._silent_until = float("-inf")
        self._upkeep = TtlCache(self._read, MAX_AGE)

    def upkeep(self) -> Upkeep:
        """The present state; notes the dead letters that cannot be read.

        Raises `StoreDown` if the first site does not answer.
        """
        return self._upkeep()

    def _read(self) -> Upkeep:
        objects = self._lookup.objects
        tables = (self._lookup.cutouts.table, self._lookup.detections.table)
        for table in tables:
            table.refresh()
        runs = {table.spec.name: table.runs() for table in tables}
        letters, more, damaged = self._letters.latest()
        states = [info for folder in (RECONCILE, SCRUB) for info in objects.list(folder)]
        # Histories have a section of their own; a check is no round.
        no_rounds = (HISTORIES, CHECKS)
        rounds = [_round(info) for info in states if not info.key.startswith(no_rounds)]
        latest = {one.name: one for one in sorted(rounds, key=lambda one: one.saved)}
        merges = [_merges(name, of_table) for name, of_table in runs.items()]
        return Upkeep(letters, more, damaged, merges, [*latest.values()], self._site(runs))

    def _site(self, runs: dict[str, list[RunInfo]]) -> Site | None:
        if not self._settings.replica:
            return None
        if self._silent and time.monotonic() < self._silent_until:
            return self._silent
        address = urlsplit(self._settings.replica)
        where = f"{address.hostname or ''}{address.path}"  # the rest may hold a password
        try:
            self._second = self._second or open_replica(self._settings)
            there = {info.key for name in runs for info in self._second.list(prefix(name))}
        except StampedeError as error:
            self._silent = Site(where, error=error.message)
            self._silent_until = time.monotonic() + PAUSE
            return self._silent
        lacking = [run for some in runs.values() for run in some if run.key not in there]
        now = datetime.now(UTC)
        return Site(where, len(lacking), sum(run.age(now) > LATE for run in lacking))


def _merges(name: str, runs: Sequence[RunInfo]) -> Merges:
    merged = [run.object.modified for run in runs if run.name.level]
    return Merges(name, len(runs), len(runs) - len(merged), max(merged, default=None))


def _round(info: ObjectInfo) -> Round:
    return Round(info.key.rpartition("/")[0].replace("/", ": "), info.modified)


class Letters:
    """Dead letters, without their alerts; those of the objects read last are kept in memory."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known = Cache(2 * LETTER_OBJECTS)  # by key and etag

    def latest(self) -> tuple[list[Letter], bool, int]:
        """Those that were written last, whether there are more, and how many objects are damaged.

        Notes the damage. Raises `StoreDown`.
        """
        listed = self._objects.list(DEAD_LETTERS)
        infos = [*islice((info for info in listed if not is_decision(info.key)), LISTED)]
        infos.sort(key=lambda info: (info.modified, info.key), reverse=True)
        letters: list[Letter] = []
        damaged = 0
        for number, info in enumerate(infos):
            if number == LETTER_OBJECTS or len(letters) > LETTERS:
                break
            try:
                letters += self._in(info)
            except NotFound:  # sent again, or merged
                continue
            except Damaged as error:
                log.error("damaged", key=info.key, why=error.message)
                damaged += 1
        if damaged:
            response_warnings.may_lack(
                f"{response_warnings.counted(damaged, 'damaged object')} of dead letters"
            )
        more = len(letters) > LETTERS or len(infos) > LETTER_OBJECTS
        return letters[:LETTERS], more, damaged

    def _in(self, info: ObjectInfo) -> list[Letter]:
        """The letters of an object. Raises `NotFound`, `StoreDown`, `Damaged`."""
        known: list[Letter] | None = self._known.get((info.key, info.etag))
        if known is None:
            rows = twice(
                self._objects, info.key, lambda: read_columns(self._objects, info, _COLUMNS)
            )
            known = [_letter(info, row) for row in rows.to_pylist()]
            self._known.put((info.key, info.etag), known, 1)
        return known


def _letter(info: ObjectInfo, row: dict[str, Any]) -> Letter:
    reason = _EVENT.sub("", row["reason"] or "no answer", count=1)
    row["reason"] = " ".join(reason.split())[:_REASON]
    return Letter(info.key.split("/")[1], **row, written=info.modified)
