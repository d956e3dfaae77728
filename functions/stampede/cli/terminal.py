"""What commands that send many alerts show, and how they stop."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Generic, TypeVar

import typer

from stampede.cli.options import progress_console
from stampede.runtime.counts import counted

LINE_SECONDS = 5.0  # between lines of progress, if stderr is not a terminal
INTERRUPTED = 130  # exit status after Ctrl-C

Alert = TypeVar("Alert")


class Tally(Generic[Alert]):
    """Counts of the alerts sent so far; `size` gives the bytes of one."""

    def __init__(self, size: Callable[[Alert], int]) -> None:
        self.start = time.monotonic()
        self.alerts = self.bytes = 0
        self._size = size

    def add(self, alert: Alert) -> None:
        """Count one alert."""
        self.alerts += 1
        self.bytes += self._size(alert)

    def __str__(self) -> str:
        seconds = max(time.monotonic() - self.start, 1e-9)
        return (
            f"{counted(self.alerts, 'alert')}, {self.bytes / 1e6:,.0f} MB in {seconds:,.1f} s "
            f"({self.alerts / seconds:,.0f}/s)"
        )


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """A function that returns False after the first Ctrl-C. A second Ctrl-C ends the command."""
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: not stopped
    finally:
        signal.signal(signal.SIGINT, before)


def progress_to_stderr(
    total: int, tally: Tally[Alert]
) -> AbstractContextManager[Callable[[Alert], None]]:
    """A function to call for each sent alert: it counts the alert and shows the progress."""
    if sys.stderr.isatty():
        return _progress_bar(total, tally)
    return nullcontext(_progress_lines(total, tally))


@contextmanager
def _progress_bar(total: int, tally: Tally[Alert]) -> Iterator[Callable[[Alert], None]]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("alerts"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=progress_console(), transient=True) as bar:
        task = bar.add_task("", total=total, speed="")

        def advance(alert: Alert) -> None:
            tally.add(alert)
            speed = tally.alerts / (time.monotonic() - tally.start)
            bar.update(task, advance=1, speed=f"{speed:,.0f}/s")

        yield advance


def _progress_lines(total: int, tally: Tally[Alert]) -> Callable[[Alert], None]:
    printed = tally.start

    def print_line(alert: Alert) -> None:
        nonlocal printed
        tally.add(alert)
        if time.monotonic() - printed >= LINE_SECONDS:
            printed = time.monotonic()
            typer.echo(f"{tally.alerts:,} of {total:,} alerts", err=True)

    return print_line
