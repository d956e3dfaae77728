"""Which observing programmes an object holds: its key says it, so that nobody need read it.

The alerts of each programme have packs and raw copies of their own,
``<digest>-programid2.parquet``, and so have packets whose history is of several,
``<digest>-programid1.2.parquet``. So a programme is removed by deleting whole objects.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

SUFFIX = r"(?:-programid(?P<programids>\d+(?:\.\d+)*))?"
"""What may follow the digest in a key: a pattern with one group."""
_KEY = re.compile(rf".*[/-][0-9a-f]{{32}}{SUFFIX}\.parquet")


def suffix(programids: Iterable[int]) -> str:
    """What follows the digest in the key of an object with alerts of these programmes."""
    text = ".".join(map(str, sorted(programids)))
    return f"-programid{text}" if text else ""


@lru_cache(10_000)
def programids_of(key: str) -> frozenset[int]:
    """The programmes that the key of an object names; none of a survey without programmes."""
    found = _KEY.fullmatch(key)
    return programids_in(found["programids"]) if found else frozenset()


def programids_in(text: str | None) -> frozenset[int]:
    """The programmes in the text of a key, such as ``1.2``."""
    return frozenset(map(int, text.split("."))) if text else frozenset()
