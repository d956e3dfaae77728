"""What `read` answers of proofs: those of nights, and the path of an alert to its night's root."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from stampede.errors import Damaged, NotFound
from stampede.proofs.leaves import ID_BYTES, StoredLeaves
from stampede.proofs.night_proof import NightProof, keys_of, latest_of, nights_of
from stampede.proofs.ranges import MOST_ENTRIES, digests_of
from stampede.store.integrity.proof_keys import PROOFS
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import Objects

KEPT_SECONDS = 60.0
"""How long a reader may not see a new revision."""
_CACHE_BYTES = 16 << 20
_PROOF_BYTES = 20_000  # of a night in memory, more or less


class NoProof(NotFound):
    """The night has no proof, or not yet one with this alert."""

    name = "no-proof"


class DamagedProof(NamedTuple):
    """A night whose latest proof cannot be read, and why."""

    survey: str
    night: int
    why: str


class ProofReader:
    """Reads the proofs of a store; several threads may use it. Every method blocks."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._cache = Cache(_CACHE_BYTES)

    def latest(self, survey: str, night: int) -> NightProof:
        """The latest proof of a night. Raises `NoProof`, `StoreDown`, `Damaged`."""
        return self._latest(survey, night)[0]

    def of_night(self, night: int) -> dict[str, NightProof | None]:
        """The latest proof of each survey that has one, by survey; None if it is damaged.

        Raises `StoreDown`.
        """
        found: dict[str, NightProof | None] = {}
        for folder in self._objects.list_folder(PROOFS).folders:
            survey = folder.split("/")[1]
            with suppress(NoProof):
                found[survey] = self.sound(survey, night)
        return found

    def named(self, survey: str, night: int, sha256: str) -> NightProof:
        """The revision that other proofs name so. Raises `NoProof`, `StoreDown`, `Damaged`."""
        for key in keys_of(self._objects, survey, night):
            proof = NightProof.parse(key, self._objects.get(key))
            if proof.sha256 == sha256:
                return proof
        raise NoProof(f"night {night} of {survey} has no proof with this SHA-256")

    def newest(
        self, most: int, survey: str | None = None, before: int | None = None
    ) -> list[NightProof | DamagedProof]:
        """The latest proofs of the latest `most` nights, those before a night if one is given.

        The latest night first. Raises `StoreDown`.
        """
        places = [
            (name, night)
            for name, night in self.nights()
            if survey in (None, name) and (before is None or night < before)
        ]
        nights = sorted({night for _, night in places})[-most:]
        found: list[NightProof | DamagedProof] = []
        for name, night in places:
            if night >= nights[0]:
                try:
                    found.append(self.latest(name, night))
                except Damaged as error:
                    found.append(DamagedProof(name, night, error.message))
        return found

    def nights(self) -> list[tuple[str, int]]:
        """The surveys and nights that have proofs, the latest night first. Raises `StoreDown`."""
        return sorted(nights_of(self._objects), key=lambda each: (-each[1], each[0]))

    def sound(self, survey: str, night: int) -> NightProof | None:
        """The latest proof of a night; None if it is damaged. Raises `NoProof`, `StoreDown`."""
        try:
            return self.latest(survey, night)
        except Damaged:
            return None

    def range_digests(self, survey: str, night: int, begins: Sequence[int]) -> bytes:
        """The digest of each range of a night's entries.

        Raises `NoProof`, `StoreDown`, `Damaged`.
        """
        return b"".join(digests_of(self._latest(survey, night)[1].pieces(), begins))

    def entries(self, survey: str, night: int, first: int, until: int | None) -> bytes:
        """The entries of the alerts from `first` to before `until`, at most `MOST_ENTRIES`.

        Raises `NoProof`, `StoreDown`, `Damaged`.
        """
        leaves = self._latest(survey, night)[1]
        return leaves.between(first, until, MOST_ENTRIES).tobytes()

    def first_alert(self, proof: NightProof) -> int | None:
        """The id of one alert of a night; None if it has none.

        Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        heads = proof.leaves(self._objects).read_heads()
        return int(heads[0]) if len(heads) else None

    def of_alert(self, alert_id: int, survey: str, night: int) -> dict[str, Any]:
        """The path from each version of an alert to the root of its night, as JSON.

        Raises `NoProof`, `StoreDown`, `Damaged`.
        """
        proof, leaves = self._latest(survey, night)
        found = leaves.of_alert(alert_id)
        if not found:
            raise NoProof(f"the proof of night {night} has no alert {alert_id} yet")
        versions = [
            {
                "sha256": leaf.entry[ID_BYTES:].hex(),
                "number": leaf.number,
                "path": [each.hex() for each in leaf.path],
            }
            for leaf in found
        ]
        return {
            "alert_id": str(alert_id),
            "survey": survey,
            "night": night,
            "revision": proof.revision,
            "proof": f"/v1/proofs/{survey}/{night}",
            "versions": versions,
        }

    def _latest(self, survey: str, night: int) -> tuple[NightProof, StoredLeaves]:
        name = survey, night
        kept = self._cache.get(name)
        if kept is None or time.monotonic() - kept[0] > KEPT_SECONDS:
            found = latest_of(self._objects, survey, night)
            if not found:
                raise NoProof(f"night {night} of {survey} has no proof")
            kept = time.monotonic(), (found[-1], found[-1].leaves(self._objects))
            self._cache.put(name, kept, _PROOF_BYTES)
        proof: tuple[NightProof, StoredLeaves] = kept[1]
        return proof
