"""Names of runs, and the digests in every name of the store."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import pyarrow as pa

_NAME = re.compile(
    r"(?P<level>\d{4})-(?P<digest>[0-9a-f]{32})(-(?P<part>\d+)of(?P<parts>\d+))?\.parquet"
)

_MOST_PARTS = 100_000


@dataclass(frozen=True)
class RunName:
    """A run's key in pieces: ``tables/<table>/<level>-<digest>[-<part>of<parts>].parquet``."""

    level: int
    digest: str
    part: int = 0
    parts: int = 1

    @property
    def run(self) -> str:
        """The name of the whole run, without the part: what `RunInfo.inputs` lists."""
        return f"{self.level:04}-{self.digest}"

    def key(self, table: str) -> str:
        """Where the part lies in the store."""
        part = f"-{self.part}of{self.parts}" if self.parts > 1 else ""
        return f"{prefix(table)}{self.run}{part}.parquet"

    @property
    def whole(self) -> "RunName":
        """The name of the first part of this run: the same for all its parts."""
        return replace(self, part=0)

    def keys(self, table: str) -> list[str]:
        """Where all parts of the run lie in the store."""
        return [replace(self, part=number).key(table) for number in range(self.parts)]

    @classmethod
    def merged(
        cls, level: int, inputs: Sequence[str], cuts: str, part: int, parts: int
    ) -> "RunName":
        """The name of a part of a merged run: the digest of its inputs' names and of its cuts."""
        return cls(level, digest(json.dumps([list(inputs), cuts])), part, parts)

    @classmethod
    def parse(cls, key: str) -> "RunName | None":
        """The name in a key; None if the key is not that of a run."""
        name = _NAME.fullmatch(key.rpartition("/")[2])
        if not name:
            return None
        part, parts = int(name["part"] or 0), int(name["parts"] or 1)
        made = cls(int(name["level"]), name["digest"], part, parts)
        # A foreign key such as `...-0of1` or `...-00of8` must not count as a part of a run.
        written_so = made.key("").endswith(f"/{name[0]}")
        return made if written_so and part < parts <= _MOST_PARTS else None


def prefix(table: str) -> str:
    """Where the runs of a table lie."""
    return f"tables/{table}/"


def digest(*pieces: bytes | str | pa.Buffer) -> str:
    """The first half of the SHA-256, in hexadecimal, as in every name of the store.

    SHA-256, because S3's signature needs that of every PUT: `Pack` uses one digest for both.
    """
    state = sha256()
    for piece in pieces:
        state.update(piece.encode() if isinstance(piece, str) else piece)
    return name_of(state.hexdigest())


def name_of(sha256_hex: str) -> str:
    """What `digest` makes of a whole SHA-256, in hexadecimal."""
    return sha256_hex[:32]
