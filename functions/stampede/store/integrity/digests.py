"""Digests of an object that is read in pieces, and what they prove about it."""

import re
from collections.abc import Iterator
from hashlib import md5, sha256

from stampede.errors import Damaged
from stampede.store.integrity.proof_keys import digest_in
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.programmes.keys import SUFFIX
from stampede.store.runs.run_name import name_of

# Names that are the digest of the bytes; that of a merged run is one of its inputs' names.
_NAMED = re.compile(
    r"(?:(?:packs|thumbnails|packets|alerts|deadletters)/.*|tables/[^/]+/0000-)([0-9a-f]{32})"
    + SUFFIX
    + r"\.parquet"
)
_MD5 = re.compile(r"[0-9a-f]{32}")


def same(one: ObjectInfo, other: ObjectInfo | None) -> bool:
    """Whether two stores hold the same content under one name.

    A name has one content here, and a PUT is whole or nothing, so the size would be enough. Two
    etags that are both MD5s of the content show damage as well.
    """
    if other is None or one.size != other.size:
        return False
    both_md5 = _MD5.fullmatch(one.etag) and _MD5.fullmatch(other.etag)
    return one.etag == other.etag or not both_md5


class Digests:
    """Digests of one object, computed piece by piece.

    Parameters
    ----------
    in_parts
        Whether each piece is uploaded as one part, so that the etag is that of an upload in parts.
    """

    def __init__(self, info: ObjectInfo, in_parts: bool) -> None:
        self.info = info
        self._size = 0
        self._md5 = md5(usedforsecurity=False)
        self._in_parts = in_parts
        self._parts: list[bytes] = []
        named = _NAMED.fullmatch(info.key)
        self._name = named[1] if named else digest_in(info.key)
        self._sha256 = sha256()

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        self._size += len(piece)
        self._md5.update(piece)
        if self._in_parts:
            self._parts.append(md5(piece, usedforsecurity=False).digest())
        if self._name:
            self._sha256.update(piece)

    def checked(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Pass `pieces` on. At their end raises `Damaged` if they are not the object.

        The upload that reads them then never ends, and stores nothing.
        """
        for piece in pieces:
            self.add(piece)
            yield piece
        self.check()

    def check(self) -> None:
        """Raise `Damaged` if the pieces are not the object."""
        etag = self.info.etag
        if self._name:
            sound = self._name == name_of(self._sha256.hexdigest())
        else:
            sound = not _MD5.fullmatch(etag) or etag == self._md5.hexdigest()
        if not sound or self._size != self.info.size:
            raise Damaged(f"{self.info.key} does not read as it was stored: it is damaged")

    @property
    def etags(self) -> tuple[str, str]:
        """The etags S3 gives this object: stored by one PUT, or in parts."""
        of_parts = md5(b"".join(self._parts), usedforsecurity=False).hexdigest()
        return self._md5.hexdigest(), f"{of_parts}-{len(self._parts)}"
