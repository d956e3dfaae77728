"""A function is called on many items, a few at a time."""

import threading
from collections.abc import Iterator

import pytest

from stampede.runtime.bounded_pool import run_all


def test_so_many_run_at_once_and_no_more() -> None:
    """Each waits until two are there; a third would be seen."""
    together, lock, under_way = threading.Barrier(2, timeout=10), threading.Lock(), set[int]()
    most = 0

    def act(number: int) -> None:
        nonlocal most
        with lock:
            under_way.add(number)
            most = max(most, len(under_way))
        together.wait()
        with lock:
            under_way.remove(number)

    run_all(act, range(8), 2, "test")
    assert most == 2


def test_items_are_taken_as_they_are_needed() -> None:
    taken = list[int]()

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    def act(number: int) -> None:
        if number == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        run_all(act, items(), 2, "test")
    assert 3 in taken
    assert len(taken) < 100
