"""`stampede simulate`: make alerts, and send or write them."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import takewhile
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import DATA, progress_console
from stampede.errors import SetupError

if TYPE_CHECKING:
    from stampede.simulator.packets import SimulatedAlert

LINE_SECONDS = 5.0  # between lines of progress, if stderr is not a terminal
INTERRUPTED = 130  # exit status after Ctrl-C
FAULTS = (  # the names in `simulator.faults.FAULTS`, which `--help` must not import
    "empty, magic, truncated, trailing, zeros, unknown-schema, wrong-schema, no-time, future, "
    "not-fits"
)


def simulate(
    to: Annotated[
        str | None,
        typer.Option(
            help="kafka://HOST:PORT (?lsst=TOPIC&ztf=TOPIC), FILE.tar, or a folder; without it, "
            "the Kafka of the `stampede up` that runs here"
        ),
    ] = None,
    alerts: Annotated[int, typer.Option(min=1, help="how many messages")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="another seed, another sky")] = 1,
    lsst_share: Annotated[float, typer.Option(min=0, max=1, help="the rest is ZTF's")] = 0.5,
    objects: Annotated[int, typer.Option(min=1, help="objects in a field, on one detector")] = 100,
    nights: Annotated[
        int, typer.Option(min=1, max=340, help="nights that a field is observed")
    ] = 60,
    solar_system: Annotated[
        float, typer.Option(min=0, max=1, help="share of Rubin's alerts that show a small body")
    ] = 0.05,
    null_cutouts: Annotated[
        float, typer.Option(min=0, max=1, help="share that lacks one cutout or more")
    ] = 0.01,
    duplicates: Annotated[
        float, typer.Option(min=0, max=1, help="share that repeats an earlier message")
    ] = 0.0,
    corrupt: Annotated[
        float, typer.Option(min=0, max=1, help=f"share that is corrupt: {FAULTS}")
    ] = 0.0,
    codec: Annotated[
        str, typer.Option(help="of ZTF's containers: null, deflate or snappy")
    ] = "null",
    rate: Annotated[
        float, typer.Option(min=0, help="alerts per second; 0: as fast as possible")
    ] = 0.0,
) -> None:
    """Make alerts of an invented sky, the same for the same options, and write them.

    Ctrl-C stops after the current alert, so that every alert is written whole.
    """
    from stampede.simulator.simulator import Simulator
    from stampede.simulator.write import write

    try:
        simulator = Simulator(
            seed,
            objects=objects,
            nights=nights,
            lsst_share=lsst_share,
            solar_system=solar_system,
            null_cutouts=null_cutouts,
            duplicates=duplicates,
            corrupt=corrupt,
            codec=codec,
            keep_light_curves=False,
        )
    except ValueError as error:
        raise SetupError(str(error)) from error
    to = to or local_kafka()
    tally = Tally()
    with interruptible() as running, progress_to_stderr(alerts, tally) as progress:
        stream = takewhile(lambda _: running(), paced(simulator.alerts(alerts), rate))
        written = write(stream, to, progress)
    typer.echo(f"{tally} to {to}")
    if written < alerts:
        raise typer.Exit(INTERRUPTED)


def local_kafka() -> str:
    """The Kafka of the running `stampede up`. Raises `SetupError` if there is none."""
    from stampede.cli.running import running

    system = running(DATA)
    if not system or not system.settings.kafka:
        raise SetupError("no Kafka is up here: start `stampede up`, or say where with --to")
    return f"kafka://{system.settings.kafka}"


class Tally:
    """Counts of the alerts written so far."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.alerts = self.bytes = 0
        self.counts: Counter[str] = Counter()

    def add(self, alert: SimulatedAlert) -> None:
        """Count one alert."""
        self.alerts += 1
        self.bytes += len(alert.body)
        self.counts[alert.survey] += 1
        self.counts["duplicates"] += alert.duplicate
        self.counts["corrupt"] += alert.fault is not None

    def __str__(self) -> str:
        seconds = max(time.monotonic() - self.start, 1e-9)
        parts = ", ".join(f"{number:,} {name}" for name, number in self.counts.items() if number)
        return (
            f"{self.alerts:,} alerts, {self.bytes / 1e6:,.0f} MB in {seconds:,.1f} s "
            f"({self.alerts / seconds:,.0f}/s): {parts or 'none'}"
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
    total: int, tally: Tally
) -> AbstractContextManager[Callable[[SimulatedAlert], None]]:
    """A function to call for each written alert: it counts the alert and shows the progress."""
    if sys.stderr.isatty():
        return _progress_bar(total, tally)
    return nullcontext(_progress_lines(total, tally))


@contextmanager
def _progress_bar(total: int, tally: Tally) -> Iterator[Callable[[SimulatedAlert], None]]:
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

        def advance(alert: SimulatedAlert) -> None:
            tally.add(alert)
            speed = tally.alerts / (time.monotonic() - tally.start)
            bar.update(task, advance=1, speed=f"{speed:,.0f}/s")

        yield advance


def _progress_lines(total: int, tally: Tally) -> Callable[[SimulatedAlert], None]:
    printed = tally.start

    def print_line(alert: SimulatedAlert) -> None:
        nonlocal printed
        tally.add(alert)
        if time.monotonic() - printed >= LINE_SECONDS:
            printed = time.monotonic()
            typer.echo(f"{tally.alerts:,} of {total:,} alerts", err=True)

    return print_line


def paced(alerts: Iterable[SimulatedAlert], rate: float) -> Iterator[SimulatedAlert]:
    """The same alerts, at most `rate` per second; without a limit if `rate` is 0."""
    start = time.monotonic()
    for number, alert in enumerate(alerts):
        if rate:
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
        yield alert
