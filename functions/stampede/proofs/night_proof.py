"""The proof of a night: one small JSON document for each survey and night, and its revisions.

The same alerts give the same document, since it says nothing of when or where it was made: so two
that make it at once write the same objects.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stampede.errors import Damaged
from stampede.proofs.leaves import StoredLeaves
from stampede.proofs.signatures import SigningKey, canonical, is_signed
from stampede.runtime.counts import counted
from stampede.store.integrity import proof_keys
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.run_name import digest

FORMAT = "stampede-night-proof/1"
FATES = ("stored", "other_nights", "dead_lettered", "missing")
"""What became of an offset."""


@dataclass(frozen=True)
class NightProof:
    """A document, as it is stored.

    Attributes
    ----------
    key
        That of its object.
    data
        Its bytes.
    statement
        What is signed.
    public_key, signature
        Base64; None if it is not signed.
    """

    key: str
    data: bytes
    statement: Mapping[str, Any]
    public_key: str | None
    signature: str | None

    @classmethod
    def parse(cls, key: str, data: bytes) -> "NightProof":
        """A document from its bytes. Raises `Damaged`, also if its key is that of another."""
        if proof_keys.digest_in(key) != digest(data):
            raise Damaged(f"{key} does not have the digest in its name")
        try:
            document = json.loads(data)
            proof = cls(key, data, document["proof"], document["public_key"], document["signature"])
            place = proof.survey, proof.night, proof.revision
            _ = proof.count, proof.alerts, proof.root, proof.leaves_key, proof.complete
            _ = (
                proof.previous,
                proof.replaces,
                proof.dead_letters,
                int(proof.lost.get("entries", 0)),
                [proof.offsets(each) for each in FATES],
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Damaged(f"{key} is no proof of a night: {error}") from None
        if place != proof_keys.parse_proof(key):
            raise Damaged(f"{key} is the proof of another night")
        return proof

    @property
    def survey(self) -> str:
        """The survey."""
        return str(self.statement["survey"])

    @property
    def night(self) -> int:
        """The night: integer MJD (TAI) of its alerts."""
        return int(self.statement["night"])

    @property
    def revision(self) -> int:
        """Its number, from 1."""
        return int(self.statement["revision"])

    @property
    def count(self) -> int:
        """How many entries its tree has."""
        return int(self.statement["tree"]["entries"])

    @property
    def alerts(self) -> int:
        """How many alerts it has."""
        return int(self.statement["alerts"])

    @property
    def complete(self) -> bool:
        """Whether it has all alerts of its night that were stored."""
        return bool(self.statement["complete"])

    @property
    def replaces(self) -> list[str]:
        """The revision before, by SHA-256; several if two made it at once."""
        return [str(each) for each in self.statement["replaces"]]

    @property
    def previous(self) -> tuple[int, str] | None:
        """Night and SHA-256 of the proof of the night before; None if it is the first."""
        named = self.statement["previous"]
        return (int(named["night"]), str(named["sha256"])) if named else None

    def offsets(self, fate: str) -> Coverage:
        """The offsets, from the first to the last of the night, that had one of the `FATES`."""
        return Coverage.from_json(json.dumps(self.statement["offsets"][fate]))

    @property
    def dead_letters(self) -> dict[str, int]:
        """How many dead letters there are of each status; empty in proofs that do not say it."""
        counts = self.statement.get("dead_letters", {})
        return {str(status): int(count) for status, count in counts.items()}

    @property
    def lost(self) -> dict[str, Any]:
        """How many entries are lost (``entries``), and which (``named``); empty if none is."""
        return dict(self.statement.get("lost", {}))

    @property
    def root(self) -> bytes:
        """The root of its tree."""
        return bytes.fromhex(self.statement["tree"]["root"])

    @property
    def leaves_key(self) -> str:
        """The key of its entries."""
        return proof_keys.leaves_key(self.survey, self.night, self.statement["tree"]["leaves"])

    @property
    def sha256(self) -> str:
        """What later proofs name it by: SHA-256 of what is signed, hexadecimal."""
        return hashlib.sha256(canonical(self.statement)).hexdigest()

    @property
    def is_signed(self) -> bool:
        """Whether it has the signature of its public key."""
        text, signature, key = canonical(self.statement), self.signature, self.public_key
        return bool(signature and key and is_signed(text, signature, key))

    @property
    def line(self) -> str:
        """It in one line."""
        return (
            f"{self.survey} {self.night}, revision {self.revision}: "
            f"{counted(self.count, 'entry')}, "
            f"root {self.root.hex()}" + (f", {self.lost['entries']:,} lost" if self.lost else "")
        )

    def leaves(self, objects: Objects) -> StoredLeaves:
        """Its entries."""
        return StoredLeaves(objects, self.leaves_key, self.count, self.root)


def signed(statement: Mapping[str, Any], key: SigningKey | None) -> NightProof:
    """The document of a statement, signed if there is a key."""
    text = canonical(statement)
    public_key, signature = (key.public_key, key.sign(text)) if key else (None, None)
    document = {"proof": statement, "public_key": public_key, "signature": signature}
    data = canonical(document)
    place = statement["survey"], statement["night"], statement["revision"]
    name = proof_keys.proof_key(*place, digest(data))
    return NightProof(name, data, statement, public_key, signature)


def nights_of(objects: Objects) -> Iterator[tuple[str, int]]:
    """The surveys and nights that have proofs, in order. Raises `StoreDown`."""
    found: list[tuple[str, int] | None] = []
    for survey in objects.list_folder(proof_keys.PROOFS).folders:
        found += map(proof_keys.parse_folder, objects.list_folder(survey).folders)
    yield from sorted(each for each in found if each)


def keys_of(objects: Objects, survey: str, night: int) -> list[str]:
    """The keys of the proofs of a night, the latest revision last. Raises `StoreDown`."""
    listed = objects.list(f"{proof_keys.PROOFS}{survey}/{night}/")
    return [info.key for info in listed if proof_keys.parse_proof(info.key)]


def latest_of(objects: Objects, survey: str, night: int) -> list[NightProof]:
    """The proofs of a night with the greatest revision; several if two made them at once.

    Raises `StoreDown`, and `Damaged` if one is damaged.
    """
    keys = keys_of(objects, survey, night)
    last = keys and proof_keys.parse_proof(keys[-1])
    return [
        NightProof.parse(key, objects.get(key))
        for key in keys
        if proof_keys.parse_proof(key) == last
    ]
