"""Plays many seeds: ``cd functions && python -m tests.store.simulation --steps 1000000``."""

import argparse
import logging
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

import structlog

from tests.store.simulation.campaign import ANYTHING, ORPHANS, Failure, Scenario, search, shrink
from tests.store.simulation.planted import PLANTED, finds

SHARE = 20_000  # requests that a process makes at a time
APART = 1_000_000  # between the first seeds of two shares


def main() -> int:
    """Play seeds until so many requests are made; print what fails, simplified. Returns 0 or 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.store.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--steps", type=int, default=1_000_000, help="requests to make, in all")
    parser.add_argument("--minutes", type=float, default=40, help="stop after so long, and fail")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--as-it-is", action="store_true", help="do not simplify what fails")
    parser.add_argument(
        "--planted", type=int, metavar="SEEDS", help="only print how many seeds find each bug"
    )
    arguments = parser.parse_args()
    if arguments.planted:
        _quiet()
        return _measure(range(arguments.seed, arguments.seed + arguments.planted))
    begin, made, share = time.monotonic(), 0, min(SHARE, arguments.steps)
    shares = range(-(-arguments.steps // share))
    with ProcessPoolExecutor(arguments.processes, initializer=_quiet) as pool:
        parts = [
            pool.submit(
                search,
                arguments.seed + n * APART,
                share,
                Scenario(actors=ORPHANS) if n % 10 == 9 else ANYTHING,
            )
            for n in shares
        ]
        for part in as_completed(parts):
            steps, failure = part.result()
            made += steps
            minutes = (time.monotonic() - begin) / 60
            print(f"{made:,} requests, {minutes:.1f} minutes", flush=True)
            if failure or minutes > arguments.minutes:
                pool.shutdown(cancel_futures=True)
                return _fail(failure, arguments.as_it_is)
    print(f"no fault in {made:,} requests")
    return 0


def _fail(failure: Failure | None, as_it_is: bool) -> int:
    if failure is None:
        print("the time is over", file=sys.stderr)
        return 1
    print(f"seed {failure.seed}: {failure.why}", flush=True)
    if not as_it_is:
        print("looking for a simpler one", flush=True)
        failure = shrink(failure)
    print(failure)
    return 1


def _measure(seeds: range) -> int:
    for bug in PLANTED:
        found = sum(finds(seed, bug) for seed in seeds)
        print(f"{found} of {len(seeds)} seeds find {bug.__name__}", flush=True)
    return 0


def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


if __name__ == "__main__":
    sys.exit(main())
