"""Checks the proofs of a store: their signatures, their chain, and what the store has of them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stampede.errors import Damaged, NotFound
from stampede.proofs.leaves import ids_of, no_entries, united
from stampede.proofs.losses import Losses
from stampede.proofs.night_proof import NightProof, keys_of, nights_of
from stampede.runtime.clock import mjd
from stampede.runtime.counts import counted
from stampede.store.objects.object_store import Objects
from stampede.store.packs.pack import is_past

MOST_NAMED = 100
"""Alerts of a night that are named, of each kind of fault; the others are counted."""


@dataclass(frozen=True)
class ProofFault:
    """What is wrong with the proof of a night, or with what the store has of it."""

    survey: str
    night: int
    fault: str


class ProofChecker:
    """Checks proofs.

    Parameters
    ----------
    public_key
        Of the owner, base64; None believes the key in each proof.
    packet_days
        Days after their night that packets are kept; None is for ever.

    Attributes
    ----------
    checked
        How many nights were checked.
    """

    def __init__(self, objects: Objects, public_key: str | None, packet_days: int | None) -> None:
        self._objects, self._public_key, self._packet_days = objects, public_key, packet_days
        self._digests: dict[tuple[str, int], set[str]] = {}
        self.checked = 0

    def faults(self) -> Iterator[ProofFault]:
        """Everything that is wrong, the earliest night of each survey first. Raises `StoreDown`."""
        for survey, night in nights_of(self._objects):
            self.checked += 1
            for fault in self._of_night(survey, night):
                yield ProofFault(survey, night, fault)

    def _of_night(self, survey: str, night: int) -> Iterator[str]:
        proofs: list[NightProof] = []
        for key in keys_of(self._objects, survey, night):
            try:
                proofs.append(NightProof.parse(key, self._objects.get(key)))
            except (Damaged, NotFound) as error:
                yield error.message
        self._digests[survey, night] = {each.sha256 for each in proofs}
        latest = no_entries()
        for proof in proofs:
            yield from self._of_document(proof, proofs)
            try:
                entries = proof.leaves(self._objects).read()
            except (Damaged, NotFound) as error:
                yield error.message
                return
            both = united(latest, entries)
            if proof.revision > 1 and len(both) > len(entries):
                yield f"revision {proof.revision} lacks entries of an earlier one"
            latest = both
        if proofs:
            yield from self._in_store(survey, night, latest)

    def _of_document(self, proof: NightProof, proofs: list[NightProof]) -> Iterator[str]:
        """What is wrong with a document by itself, and with those that it names."""
        name = f"revision {proof.revision}"
        if not proof.signature:
            yield f"{name} is not signed"
        elif not proof.is_signed:
            yield f"{name} does not have the signature of its key"
        elif self._public_key and proof.public_key != self._public_key:
            yield f"{name} is signed by another key, {proof.public_key}"
        before = {each.sha256 for each in proofs if each.revision == proof.revision - 1}
        if not set(proof.statement["replaces"]) <= before or bool(before) != (proof.revision > 1):
            yield f"{name} replaces a revision that is not there"
        previous = proof.statement["previous"]
        if previous and previous["sha256"] not in self._digests.get(
            (proof.survey, previous["night"]), set()
        ):
            yield f"{name} names a proof of night {previous['night']} that is not there"

    def _in_store(self, survey: str, night: int, proven: np.ndarray) -> Iterator[str]:
        """Where the alerts of a night differ from its proof."""
        if is_past(night, self._packet_days, mjd(self._objects.now())):
            return
        found = Losses(self._objects, survey, night, proven)
        yield from (f"a pack cannot be read: {why}" for why in found.damaged.values())
        lost, new = found.lost, found.new
        changed = np.intersect1d(ids_of(lost), ids_of(new))
        kinds = {
            "has another record than in the proof": changed,
            "is in the proof and not in the store": np.setdiff1d(ids_of(lost), changed),
            "is in the store and not in the proof": np.setdiff1d(ids_of(new), changed),
        }
        for what, ids in kinds.items():
            yield from (f"alert {each} {what}" for each in ids[:MOST_NAMED].tolist())
            if len(ids) > MOST_NAMED:
                yield f"{counted(len(ids) - MOST_NAMED, 'more alert')}: each {what}"
