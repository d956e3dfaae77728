"""The fuzz targets take the bytes that fuzzing begins with, and changes of them."""

import random

import pytest

from tests.fuzz.targets import TARGETS, Target

CHANGES = 30


def changed(data: bytes, chance: random.Random) -> bytes:
    """Some bytes of `data` changed, removed or repeated."""
    some = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(some) + 1)
        end = min(len(some), start + chance.choice((1, 1, 2, 8, 64)))
        match chance.randrange(3):
            case 0:
                some[start:end] = chance.randbytes(end - start)
            case 1:
                del some[start:end]
            case 2:
                some[start:start] = some[start:end]
    return bytes(some)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_any_bytes_have_an_answer(target: Target) -> None:
    chance = random.Random(1)
    for seed in target.seeds():
        target.run(seed)
        for _ in range(CHANGES if len(seed) < 10_000 else 2):
            target.run(changed(seed, chance))
