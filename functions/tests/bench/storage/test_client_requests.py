import pytest

from stampede_bench.storage.client_requests import Done, Part, RequestTimes, merge


def test_the_requests_of_several_processes_are_one_measurement() -> None:
    one = Part([Done(101.0, 500.0, "a"), Done(103.0, 2000.0, "c")], 1)
    other = Part([Done(102.0, 1500.0, "b")], 2)
    assert merge([one, other]) == RequestTimes(["a", "b", "c"], [500.0, 1500.0, 2000.0], 3, 2.5)
    assert merge([other, Part([], 0), one]) == merge([one, other])
    assert merge([one, other]).rate == pytest.approx(3 / 2.5)


def test_a_rate_without_requests_is_zero() -> None:
    assert merge([Part([], 7)]) == RequestTimes([], [], 7, 1.0)
    assert merge([]).rate == 0
