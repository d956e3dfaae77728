"""Half-open intervals of offsets."""

from collections.abc import Sequence

from stampede.store.offsets.coverage import Interval


def within(spans: Sequence[Interval], low: int, high: int) -> list[Interval]:
    """The parts of the intervals in ``[low, high)``."""
    cut = [(max(start, low), min(end, high)) for start, end in spans]
    return [(start, end) for start, end in cut if start < end]


def joined(spans: Sequence[Interval]) -> list[Interval]:
    """The intervals in order; those that touch are one."""
    found: list[Interval] = []
    for low, high in sorted(spans):
        if found and found[-1][1] == low:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found


def count(spans: Sequence[Interval]) -> int:
    """Number of offsets."""
    return sum(high - low for low, high in spans)


def named(spans: Sequence[Interval]) -> str:
    """The first interval in words, and how many offsets there are besides."""
    low, high = spans[0]
    more = f" and {count(spans[1:]):,} more" if len(spans) > 1 else ""
    return f"offsets {low:,} to {high - 1:,}{more}"
