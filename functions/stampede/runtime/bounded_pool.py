"""Calls a function on many items, a few at a time."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

A = TypeVar("A")


def run_all(act: Callable[[A], object], items: Iterable[A], concurrency: int, name: str) -> None:
    """Call `act` on each item in threads, of which at most `concurrency` run at a time.

    The items are taken in the caller's thread. The first error that `act` raises is raised, once
    what is under way has ended; the other items are left.
    """
    under_way: set[Future[object]] = set()
    with ThreadPoolExecutor(concurrency, name) as pool:
        try:
            for item in items:
                under_way.add(pool.submit(act, item))
                if len(under_way) >= concurrency:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            for future in under_way:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)
