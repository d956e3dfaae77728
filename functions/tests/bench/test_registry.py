import pytest

from stampede.errors import SetupError
from stampede_bench.registry import BENCHMARKS, measure_of


def test_every_benchmark_has_a_measure() -> None:
    assert all(callable(measure_of(name)) for name in BENCHMARKS)
    with pytest.raises(SetupError, match="no benchmark 'moon': there are decode, "):
        measure_of("moon")
