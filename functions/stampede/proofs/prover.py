"""Makes the proofs of nights, from the packs of packets.

A pass looks at each night that has ended: it reads, of the packs that it has not seen, the ids of
the alerts and the digests of their records, and no packet or image. What is new goes into the
next revision of the night's proof. An entry never leaves a proof: so merges, retention, replays and
restores change none. A pass may die at any time; the next one makes the same documents.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from stampede.errors import Damaged, NotFound
from stampede.proofs.leaves import ids_of, no_entries, packed, put, united
from stampede.proofs.losses import Losses
from stampede.proofs.night_proof import FORMAT, NightProof, latest_of, nights_of, signed
from stampede.proofs.night_rows import WINDOW, Report, silent
from stampede.proofs.offsets import OffsetAccounts
from stampede.proofs.pack_rows import Found, read_rows
from stampede.proofs.signatures import SigningKey
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.clock import mjd
from stampede.store.integrity import saved_state
from stampede.store.integrity.proof_keys import PROVING, leaves_key
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.night_keys import packed_nights
from stampede.store.packs.pack import is_past
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


class Prover:
    """Makes the proofs of one store.

    Parameters
    ----------
    key
        Signs them; None leaves them unsigned.
    days
        A night is proven so many days after its end.
    packet_days
        Days after their night that packets are kept; None is for ever.
    report
        Called with the number of a night, how many packs of it were read, and how many there are.
    """

    def __init__(
        self,
        objects: Objects,
        key: SigningKey | None,
        days: float,
        packet_days: int | None,
        report: Report = silent,
    ) -> None:
        self._objects, self._key, self._days, self._report = objects, key, days, report
        self._packet_days = packet_days
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

    def find_losses(self) -> Iterator[NightProof]:
        """Make a revision of each night that has lost alerts, or has lost ones again.

        It reads ids and digests of all packs that retention keeps. What a pack had that cannot be
        read counts as lost, unless another one has it. Raises as `make_pass`.
        """
        damaged: Damaged | None = None
        self._accounts = None
        for survey, night in nights_of(self._objects):
            if not self._kept(night):
                continue
            try:
                complete = all(each.complete for each in latest_of(self._objects, survey, night))
                if proof := self._revised(survey, night, Found(whole=complete), look=True):
                    yield proof
            except Damaged as error:
                log.error("not looked at", survey=survey, night=night, why=error.message)
                damaged = damaged or error
        if damaged:
            raise damaged

    def _kept(self, night: int) -> bool:
        return not is_past(night, self._packet_days, mjd(self._objects.now()))

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

    def _revised(
        self, survey: str, night: int, found: Found, look: bool = False
    ) -> NightProof | None:
        """Write the next proof of a night; None if the last one has all that was found.

        With `look` it finds out what is lost. Without, only if the last one says that alerts are.
        """
        before = latest_of(self._objects, survey, night)
        held = [each.leaves(self._objects).read() for each in before]
        entries = united(no_entries(), *held, *found.entries)
        lost = self._lost(survey, night, entries, before, look)
        if before and len(entries) == before[-1].count and lost == before[-1].lost:
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
            **({"lost": lost} if lost else {}),
        }
        proof = signed(statement, self._key)
        put(self._objects, leaves_key(survey, night, name), leaves)
        self._objects.put(proof.key, proof.data)
        log.info("proven", survey=survey, night=night, revision=proof.revision, key=proof.key)
        return proof

    def _lost(
        self,
        survey: str,
        night: int,
        entries: np.ndarray,
        before: Sequence[NightProof],
        look: bool,
    ) -> dict[str, Any]:
        """What the next proof says of lost alerts; empty if none is."""
        known = next((each.lost for each in before if each.lost), {})
        if not (look or known) or not self._kept(night):
            return known
        losses = Losses(self._objects, survey, night, entries, self._report)
        for key, why in losses.damaged.items():
            log.error("cannot be read", key=key, why=why)
        if losses.count:
            # What comes back, under the same name too, is read again by `make_pass`.
            self._forget(night, losses.damaged)
        return losses.as_json()

    def _forget(self, night: int, damaged: Collection[str]) -> None:
        """Keep in the states of folders that may have alerts of a night only packs that are there.

        Those that are `damaged`, keys, count as gone.
        """
        for folder in range(night, night + WINDOW):
            seen = saved_state.load(self._objects, f"{PROVING}{folder}/", Seen)
            if seen is None:
                continue
            listed = self._objects.list(f"{PACKET_PACKS.prefix}/{folder}/")
            there = {_digest_in(info.key) for info in listed if info.key not in damaged}
            if len(kept := [each for each in seen.packs if each in there]) < len(seen.packs):
                saved_state.save(self._objects, f"{PROVING}{folder}/", Seen(kept, seen.whole))

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
