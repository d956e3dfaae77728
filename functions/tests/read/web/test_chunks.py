"""How much a large query holds of what its client has not taken."""

import asyncio

import numpy as np
import pytest

from stampede.read.web.chunks import AHEAD, CHUNK, CHUNK_BYTES, MOST_CHUNKS, Chunks, chunk_limit
from stampede.read.web.chunks import read_ahead as ahead_of


def test_chunks_grow_and_hold_every_id_once():
    ids = np.arange(1000)
    chunks = [*Chunks(ids)]
    assert [len(one) for one in chunks] == [8, 16, 32, 64, *[128] * 6, 112]
    assert [one for chunk in chunks for one in chunk] == ids.tolist()


def test_a_chunk_has_fewer_ids_if_each_has_much_data():
    chunks = Chunks(np.arange(10_000))
    sizes = []
    for number, chunk in enumerate(chunks):
        per_id = CHUNK_BYTES // 20 if number < 10 else 1
        chunks.note(len(chunk), len(chunk) * per_id)
        sizes.append(len(chunk))
    assert sizes[1:10] == [16, *[20] * 8]
    assert max(sizes[10:]) == CHUNK
    assert sum(sizes) == 10_000


def test_an_id_with_very_much_data_is_a_chunk_of_its_own():
    chunks = Chunks(np.arange(100))
    for chunk in chunks:
        chunks.note(len(chunk), 1 << 40)
    assert chunk == [99]


@pytest.mark.parametrize("queries", range(1, 40))
def test_all_queries_together_hold_few_chunks(queries):
    most = chunk_limit(queries)
    assert 1 <= most <= AHEAD
    assert queries * most <= max(MOST_CHUNKS, queries)


@pytest.mark.anyio
@pytest.mark.parametrize("most", [1, 4])
async def test_no_more_is_begun_than_may_be_held(most):
    begun = 0

    async def read(number: int) -> int:
        return number

    def started():
        nonlocal begun
        for number in range(20):
            begun += 1
            yield asyncio.ensure_future(read(number))

    seen = []
    async for number in ahead_of(started(), lambda: most):
        assert begun <= number + most
        seen.append(number)
    assert seen == [*range(20)]
