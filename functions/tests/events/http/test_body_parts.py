"""Small parts of bodies are read slowly, large ones are not."""

import pytest

from stampede.events.http.body_parts import (
    LEAST_SECONDS,
    PART_BYTES,
    PARTS_A_SECOND,
    QUERY_BYTES_A_PART,
    READ_PARTS,
    PartRate,
)
from stampede.events.http.small_reads import READ_BYTES


def test_full_packets_are_never_held():
    rate = PartRate()
    for size in (1448, READ_BYTES):
        assert rate.hold(1, size, 0.0) == 0
    assert rate.hold(READ_BYTES // 256, READ_BYTES - 200, 0.0) == 0  # in chunks of 256 bytes


def test_bytes_of_queries_have_a_rate_too():
    rate, now, size, holds = PartRate(QUERY_BYTES_A_PART), 0.0, 0, set()
    while now < 1:
        seconds = rate.hold(1, READ_BYTES, now)
        holds.add(seconds == 0 or seconds >= LEAST_SECONDS)
        now += seconds
        size += READ_BYTES
    assert size == pytest.approx(PARTS_A_SECOND * QUERY_BYTES_A_PART, rel=0.01)
    assert holds == {True}


@pytest.mark.parametrize("connections", [1, 10])
def test_all_connections_together_have_a_rate(connections):
    """Each reads 4 KB of one-byte chunks as soon as it may."""
    rate, free, parts = PartRate(), [0.0] * connections, 0
    number = READ_BYTES // 6
    while (now := min(free)) < 10:
        free[free.index(now)] = now + rate.hold(number, number, now)
        parts += number
    assert 8 * PARTS_A_SECOND < parts < 12 * PARTS_A_SECOND


def test_a_rate_that_was_not_used_is_not_saved():
    rate = PartRate()
    rate.hold(1000, 1000, 0.0)
    later = rate.hold(1000, 1000, 60.0)
    assert later == pytest.approx((READ_PARTS + 1000 - 1000 // PART_BYTES) / PARTS_A_SECOND)
