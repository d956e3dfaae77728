"""`stampede reconcile`: one pass of the function of that name."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import Data, results_console
from stampede.errors import BrokerDown, StampedeError, StoreDown, StoreRefused
from stampede.runtime.counts import counted

if TYPE_CHECKING:
    from rich.console import Console

    from stampede.handlers.reconcile.findings import Copies, Finding

PAUSES = (5.0, 15.0, 30.0)  # seconds before each retry of a failed pass


def reconcile(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only list what there is to repair")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="look at all nights, and check packs of any age")
    ] = False,
    data: Data = None,
) -> None:
    """Find what events missed and repair it: one pass of the function of that name.

    Packs without their run, packs without thumbnails, objects that the second site lacks, packs
    past their retention, objects that nothing needs. A pass looks at the latest nights and at some
    of the others, in turn. If a store or a Broker is down or too busy, it is retried for a minute.
    The exit status is 1 if anything is left to repair.
    """
    from stampede.cli.running import running, settings_of
    from stampede.handlers.reconcile.reconciler import Reconciler
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()
    system = running(data)
    settings = settings_of(system)
    if system and not settings.sink:
        settings = settings.model_copy(update={"sink": system.urls.get("broker", "")})
    printer = Printer(results_console())
    reconciler = Reconciler(settings, printer.print_finding)

    def one_pass() -> None:
        printer.left = 0
        reconciler.run(not dry_run, everything)

    retry_while_down(one_pass, printer.print_retry)
    printer.print_copies(reconciler.copies)
    if not printer.left:
        printer.print_nothing_left(reconciler.looked_at_all)
    sys.exit(1 if printer.left else 0)


class Printer:
    """Prints what a command does, and counts in `left` the findings that are not repaired."""

    def __init__(self, console: Console) -> None:
        self._console, self._begin = console, time.monotonic()
        self.left = 0

    def print_finding(self, finding: Finding) -> None:
        """Print a finding, and count it if it is not repaired."""
        self.left += not finding.repaired
        note = "" if finding.repaired else " (not repaired)"
        line = f"{finding.kind}: {finding.key}{note}"
        self._console.print(line, highlight=False, soft_wrap=True)

    def print_retry(self, error: StampedeError, pause: float) -> None:
        """Print why a pass failed, and in how many seconds the next one begins."""
        line = f"{error.message}: once more in {pause:.0f} s"
        self._console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)

    def print_copies(self, copies: Copies) -> None:
        """Print how much was copied since the start, and how fast; nothing if nothing was."""
        objects, size = copies
        if not objects:
            return
        seconds = time.monotonic() - self._begin
        rate = size / 1e6 / seconds
        copied = f"copied {counted(objects, 'object')}, {size:,} bytes"
        line = f"{copied}, in {seconds:,.1f} s: {rate:,.1f} MB/s"
        self._console.print(line, highlight=False, soft_wrap=True)

    def print_nothing_left(self, looked_at_all: bool) -> None:
        """Print that nothing is left to repair, and where."""
        where = "" if looked_at_all else " in these nights; --all looks at all of them"
        self._console.print(f"nothing is left to repair{where}", style="green")


def retry_while_down(
    one_pass: Callable[[], object],
    report_retry: Callable[[StampedeError, float], None],
    pauses: Sequence[float] = PAUSES,
) -> None:
    """Make a pass, and retry it after each of `pauses` while a store or the Broker is down.

    The function `reconcile` needs no retry: its timer sends the next event. `report_retry` is
    called with each failure and the pause after it. Raises what the last pass raised.
    """
    for pause in pauses:
        try:
            one_pass()
            return
        except StoreRefused:  # a wrong key is still wrong in a minute
            raise
        except (StoreDown, BrokerDown) as error:
            report_retry(error, pause)
            time.sleep(pause)
    one_pass()
