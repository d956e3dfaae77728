import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stampede.errors import SetupError
from stampede_bench.registry import BENCHMARKS, USUAL, measure_of

ROOT = Path(__file__).parents[3]


def test_every_benchmark_has_a_measure() -> None:
    assert all(callable(measure_of(name)) for name in BENCHMARKS)
    with pytest.raises(SetupError, match="no benchmark 'moon': there are decode, "):
        measure_of("moon")


def test_peers_run_only_if_they_are_named() -> None:
    """They need checkouts that a user makes."""
    assert BENCHMARKS.keys() - USUAL == {"peers"}


@pytest.mark.integration
def test_make_bench_finds_what_all_benchmarks_need() -> None:
    """It ended at once on a machine that had only what `make` installs."""
    recipe = subprocess.run(
        ["make", "--dry-run", "bench"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    path = re.search(r"PYTHONPATH=(\S+)", recipe)
    assert path
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT / 'functions')!r}]\n"
        "from stampede_bench.registry import BENCHMARKS, USUAL, measure_of\n"
        "assert [measure_of(name) for name in BENCHMARKS]"
    )
    env = {**os.environ, "PYTHONPATH": path[1]}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True, timeout=120)
