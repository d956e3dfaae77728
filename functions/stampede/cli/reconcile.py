"""`stampede reconcile`: one pass of the function of that name."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import Data, results_console
from stampede.errors import BrokerDown, StampedeError, StoreDown, StoreRefused

if TYPE_CHECKING:
    from stampede.handlers.reconcile.findings import Finding

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
    from stampede.telemetry.logs import configure_logs

    configure_logs()
    system = running(data)
    settings = settings_of(system)
    if system and not settings.sink:
        settings = settings.model_copy(update={"sink": system.urls.get("broker", "")})
    console, left, begin = results_console(), 0, time.monotonic()

    def report(finding: Finding) -> None:
        nonlocal left
        left += not finding.repaired
        note = "" if finding.repaired else " (not repaired)"
        console.print(f"{finding.kind}: {finding.key}{note}", highlight=False, soft_wrap=True)

    def report_retry(error: StampedeError, pause: float) -> None:
        line = f"{error.message}: once more in {pause:.0f} s"
        console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)

    reconciler = Reconciler(settings, report)

    def one_pass() -> None:
        nonlocal left
        left = 0
        reconciler.run(not dry_run, everything)

    retry_while_down(one_pass, report_retry)
    if reconciler.copies.objects:
        objects, size = reconciler.copies
        seconds = time.monotonic() - begin
        rate = size / 1e6 / seconds
        line = f"copied {objects:,} objects, {size:,} bytes, in {seconds:,.1f} s: {rate:,.1f} MB/s"
        console.print(line, highlight=False, soft_wrap=True)
    if not left:
        where = "" if reconciler.looked_at_all else " in these nights; --all looks at all of them"
        console.print(f"nothing is left to repair{where}", style="green")
    sys.exit(1 if left else 0)


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
