from collections.abc import Callable
from pathlib import Path

import pytest

from stampede_bench.figures import Context, Figure
from stampede_bench.registry import measure_of


@pytest.fixture
def measure(tmp_path: Path) -> Callable[..., dict[tuple[str, str], Figure]]:
    """Runs a benchmark in its smallest form. Returns its figures by subject and name."""

    def run(
        name: str,
        real: Path | None = None,
        pool: str | None = None,
        peers: tuple[tuple[str, Path], ...] = (),
    ) -> dict[tuple[str, str], Figure]:
        context = Context(True, tmp_path, lambda _: None, real, pool=pool, scale=0.005, peers=peers)
        return {(each.subject, each.name): each for each in measure_of(name)(context)}

    return run
