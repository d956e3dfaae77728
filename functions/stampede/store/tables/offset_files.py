"""Offset files: the offsets of a large run in an object beside the checkpoints.

An offset file is the block that each part of the run has before its footer, under the same digest.
A start leaves it unread. It decides nothing: without it, a part of the run has the same.
"""

import re
from collections.abc import Iterable, Sequence
from functools import partial

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.objects.object_store import ObjectInfo, Objects, read_twice
from stampede.store.runs.packed_coverage import (
    Block,
    PackedCoverage,
    StoredCoverage,
    UnreadableOffsets,
    check_block,
    read_block,
)
from stampede.store.runs.reader import RunReader
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import digest
from stampede.store.runs.schema import TableSpec
from stampede.store.runs.section_files import CHECKPOINTS
from stampede.telemetry.logs import get_logger

LARGE_BLOCK = 16 << 10
"""Bytes of a block from which on it is in an offset file: less is in the checkpoint itself."""
_ASKED = 3  # parts of a run, if its offset file cannot be read
_KEY = re.compile(rf"{CHECKPOINTS}\w+/offsets-(?P<digest>[0-9a-f]{{32}})\.zst")

log = get_logger()


def is_offset_file(key: str) -> bool:
    """Whether a key is that of an offset file."""
    return _KEY.fullmatch(key) is not None


def offset_file_of(part: RunInfo, spec: TableSpec) -> str | None:
    """The key of the offset file of a part's run; None if it has none."""
    held = part.coverage
    if not isinstance(held, PackedCoverage) or held.block.length < LARGE_BLOCK:
        return None
    return f"{CHECKPOINTS}{spec.name}/offsets-{held.block.digest}.zst"


def check_offset_file(key: str, data: bytes) -> None:
    """Raise `Damaged` unless an object is the offset file of that name."""
    named = _KEY.fullmatch(key)
    if named is None or named["digest"] != digest(data):
        raise Damaged(f"{key} is damaged: its bytes do not have the digest in its name")
    check_block(key, PackedCoverage(data))


def load_when_asked(objects: Objects, spec: TableSpec, parts: Iterable[RunInfo]) -> None:
    """Let the offsets that a checkpoint leaves in the store be read there."""
    infos: dict[str, list[ObjectInfo]] = {}
    for part in parts:
        held = part.coverage
        if isinstance(held, StoredCoverage):
            if held.load is None:
                found = infos.setdefault(held.block.digest, [])
                key = offset_file_of(part, spec) or ""
                held.load = partial(_load, objects, spec, key, held.block, found)
            infos.setdefault(held.block.digest, []).append(part.object)


def _load(
    objects: Objects, spec: TableSpec, key: str, block: Block, parts: Sequence[ObjectInfo]
) -> bytes:
    """The bytes of a block, from its offset file or from a part of the run."""
    down: StoreDown | None = None
    try:
        return read_twice(lambda: read_block(key, block, objects.get(key)), Damaged).data
    except NotFound:  # one that no checkpoint names any more
        log.info("an offset file is gone", key=key)
    except Damaged as error:
        log.error("damaged", key=key, why=error.message)
    except StoreDown as error:  # at this object alone: otherwise the parts fail too
        log.warning("an offset file cannot be read", key=key, why=error.message)
        down = error
    reader = RunReader(objects, spec, 0)
    for info in parts[:_ASKED]:
        try:
            held = reader.footer(info).coverage
        except (NotFound, Damaged):
            continue
        except StoreDown as error:
            down = error
            continue
        if isinstance(held, PackedCoverage) and held.block == block:
            return held.data
    raise down or UnreadableOffsets(f"no object has the offsets of {key} any more")
