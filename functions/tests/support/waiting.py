"""Wait for processes in tests."""

import time
from collections.abc import Callable

import psutil


def eventually(holds: Callable[[], bool], seconds: float = 90) -> None:
    """Wait until a condition holds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gone(pid: int | None) -> bool:
    """Whether a process has ended."""
    assert pid
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
