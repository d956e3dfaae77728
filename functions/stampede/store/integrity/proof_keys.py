"""Keys of the proofs of nights, and of how far the function that makes them is.

``proofs/<survey>/<night>/<revision>-<digest>.json`` is a proof, ``<digest>.leaves`` beside it the
entries of its tree. A digest is that of the object's bytes. Saved states are in
``proving/<night>/``.
"""

import re

PROOFS = "proofs/"
PROVING = "proving/"
_FOLDER = re.compile(rf"{PROOFS}([a-z0-9]+)/(\d+)/")
_PROOF = re.compile(rf"{_FOLDER.pattern}(\d{{4}})-([0-9a-f]{{32}})\.json")
_LEAVES = re.compile(rf"{_FOLDER.pattern}([0-9a-f]{{32}})\.leaves")


def proof_key(survey: str, night: int, revision: int, digest: str) -> str:
    """The key of a proof."""
    return f"{PROOFS}{survey}/{night}/{revision:04}-{digest}.json"


def leaves_key(survey: str, night: int, digest: str) -> str:
    """The key of the entries of a proof's tree."""
    return f"{PROOFS}{survey}/{night}/{digest}.leaves"


def parse_proof(key: str) -> tuple[str, int, int] | None:
    """Survey, night and revision in the key of a proof; None for any other key."""
    found = _PROOF.fullmatch(key)
    return (found[1], int(found[2]), int(found[3])) if found else None


def parse_folder(folder: str) -> tuple[str, int] | None:
    """Survey and night of a folder of proofs; None for any other folder."""
    found = _FOLDER.fullmatch(folder)
    return (found[1], int(found[2])) if found else None


def digest_in(key: str) -> str | None:
    """The digest of the bytes, in the key of a proof or of its entries; None for any other key."""
    if found := _PROOF.fullmatch(key):
        return found[4]
    found = _LEAVES.fullmatch(key)
    return found[3] if found else None
