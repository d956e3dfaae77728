"""Makes the proofs of nights, from the packs of packets.

A pass looks at each night that has ended: it reads, of the packs that it has not seen, the ids of
the alerts and the digests of their records, and no packet or image. What is new goes into the
next revision of the night's proof. An entry never leaves a proof: so merges, retention, replays and
restores change none. A pass may die at any time; the next one makes the same documents.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged, NotFound
from stampede.proofs.leaves import entries_of, ids_of, no_entries, packed, put, united
from stampede.proofs.night_proof import FORMAT, NightProof, latest_of, nights_of, signed
from stampede.proofs.offsets import OffsetAccounts
from stampede.proofs.pack_rows import read_rows
from stampede.proofs.signatures import SigningKey
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.clock import mjd
from stampede.store.integrity import saved_state
from stampede.store.integrity.proof_keys import PROVING, leaves_key
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage, intervals_of
from stampede.store.packs.night_keys import packed_nights
from stampede.store.packs.pack_name import PackName
from stampede.store.runs.schema import PACKET_PACKS
from stampede.telemetry.logs import get_logger

log = get_logger()

RECENT = 10
"""Nights, of the latest, that each pass looks at; at all of them once a day."""
_ALL = f"{PROVING}all/"


@dataclass(frozen=True)
class Seen:
    """The packs of a night's folder that are in proofs, by the digests in their names.

    Attributes
    ----------
    whole
        Whether all of their rows, ever, had a digest.
    """

    packs: list[str] = field(default_factory=list)
    whole: bool = True


@dataclass(frozen=True)
class LookedAtAll:
    """When a pass last looked at all nights, by the store's clock."""

    at: datetime


@dataclass
class Found:
    """What packs say of one survey and night."""

    entries: list[np.ndarray] = field(default_factory=list)
    offsets: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    whole: bool = True

    def add(self, rows: pa.Table) -> None:
        """Take the rows of a pack that are of this survey and night."""
        known = rows.filter(rows["sha256"].is_valid())
        self.whole &= known.num_rows == rows.num_rows
        self.entries.append(entries_of(known["alert_id"], known["sha256"]))
        known = known.filter(known["offset"].is_valid())
        for topic in pc.unique(known["topic"]).to_pylist():
            some = known.filter(pc.equal(known["topic"], topic))
            columns = (some[name].to_numpy() for name in ("partition", "offset"))
            self.offsets[topic].append(np.stack([*columns], axis=1))

    def coverage(self) -> Coverage:
        """The offsets of these alerts."""
        spans = {}
        for topic, parts in self.offsets.items():
            places = np.concatenate(parts)
            for partition in np.unique(places[:, 0]).tolist():
                starts = places[places[:, 0] == partition, 1]
                spans[topic, partition] = intervals_of(starts)
        return Coverage(spans)


Report = Callable[[int, int, int], None]


def silent(night: int, read: int, packs: int) -> None:
    """Report nothing."""


class Prover:
    """Makes the proofs of one store.

    Parameters
    ----------
    key
        Signs them; None leaves them unsigned.
    days
        A night is proven so many days after its end.
    report
        Called with the number of a night, how many packs of it were read, and how many there are.
    """

    def __init__(
        self, objects: Objects, key: SigningKey | None, days: float, report: Report = silent
    ) -> None:
        self._objects, self._key, self._days, self._report = objects, key, days, report
        self._accounts: OffsetAccounts | None = None

    def make_pass(self, everything: bool = False) -> Iterator[NightProof]:
        """Make what is due, the earliest night first.

        A night with a pack that cannot be read has a proof of the others, which says that it is not
        complete. Raises `StoreDown`, and `Damaged` at the end if a proof cannot be read.
        """
        damaged: Damaged | None = None
        self._accounts = None
        now = self._objects.now()
        looked = saved_state.load(self._objects, _ALL, LookedAtAll)
        everything = everything or not looked or now - looked.at > timedelta(days=1)
        ended = mjd(now) - self._days
        for night in packed_nights(self._objects, PACKET_PACKS):
            if night + 1 > ended or not (everything or night > ended - RECENT):
                continue
            try:
                yield from self._prove(night)
            except Damaged as error:
                log.error("not proven", night=night, why=error.message)
                damaged = damaged or error
        if damaged:
            raise damaged
        if everything:
            saved_state.save(self._objects, _ALL, LookedAtAll(now))

    def _prove(self, night: int) -> Iterator[NightProof]:
        folder = f"{PROVING}{night}/"
        seen = saved_state.load(self._objects, folder, Seen) or Seen()
        known = {*seen.packs}
        listed = [*self._objects.list(f"{PACKET_PACKS.prefix}/{night}/")]
        new = [info for info in listed if _digest_in(info.key) not in known]
        if not new:
            return
        found: dict[tuple[str, int], Found] = defaultdict(Found)
        unread = set()
        for number, info in enumerate(new, 1):
            self._report(night, number, len(new))
            try:
                self._read(info, found)
            except NotFound:  # merged meanwhile, or deleted by its age
                continue
            except Damaged as error:  # `scrub` restores it, if a site has it: then it is new again
                log.error("not in the proof", key=info.key, why=error.message)
                unread.add(info.key)
        whole = seen.whole and all(rows.whole for rows in found.values())
        for (survey, of_night), rows in sorted(found.items()):
            rows.whole = whole and not unread
            if proof := self._revised(survey, of_night, rows):
                yield proof
        read = {_digest_in(info.key) for info in listed if info.key not in unread}
        if read != known:
            saved_state.save(self._objects, folder, Seen(sorted(read), whole))

    def _read(self, info: ObjectInfo, found: dict[tuple[str, int], Found]) -> None:
        """Add the rows of a pack to what was found. Raises `NotFound`, `Damaged`, `StoreDown`."""
        rows = read_rows(self._objects, info)
        for night in pc.unique(rows["night"]).to_pylist():
            of_night = rows.filter(pc.equal(rows["night"], night))
            for survey in pc.unique(of_night["survey"]).to_pylist():
                some = of_night.filter(pc.equal(of_night["survey"], survey))
                found[survey, night].add(some)

    def _revised(self, survey: str, night: int, found: Found) -> NightProof | None:
        """Write the next proof of a night; None if the last one has all that was found."""
        before = latest_of(self._objects, survey, night)
        held = [each.leaves(self._objects).read() for each in before]
        entries = united(no_entries(), *held, *found.entries)
        if before and len(entries) == before[-1].count:
            return None
        stored = [each.offsets("stored") for each in before]
        self._accounts = self._accounts or OffsetAccounts(self._objects)
        accounts = self._accounts.between(Coverage.union([found.coverage(), *stored]))
        leaves = packed(entries)
        name = leaves.digest
        statement: dict[str, Any] = {
            "format": FORMAT,
            "survey": survey,
            "night": night,
            "revision": before[-1].revision + 1 if before else 1,
            "replaces": sorted(each.sha256 for each in before),
            "previous": self._previous(survey, night),
            "tree": {"entries": len(entries), "root": leaves.root.hex(), "leaves": name},
            "alerts": int(np.count_nonzero(np.diff(ids_of(entries), prepend=0))),
            "complete": found.whole,
            **accounts,
        }
        proof = signed(statement, self._key)
        put(self._objects, leaves_key(survey, night, name), leaves)
        self._objects.put(proof.key, proof.data)
        log.info("proven", survey=survey, night=night, revision=proof.revision, key=proof.key)
        return proof

    def _previous(self, survey: str, night: int) -> dict[str, Any] | None:
        """The latest proof of the last night before that has one; None if none has."""
        earlier = [
            each for name, each in nights_of(self._objects) if name == survey and each < night
        ]
        if not earlier:
            return None
        proof = latest_of(self._objects, survey, earlier[-1])[-1]
        return {"night": proof.night, "sha256": proof.sha256}


def _digest_in(key: str) -> str:
    name = PackName.parse(key)
    return name.digest if name else key
