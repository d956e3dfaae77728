"""`stampede reconcile`: one pass of the function of that name."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import DATA, Data, results_console
from stampede.errors import StampedeError
from stampede.logs import configure_logs

if TYPE_CHECKING:
    from stampede.functions.reconcile import Found


def reconcile(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only say what there is to repair")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="look into packs of whatever age, not only new ones")
    ] = False,
    data: Data = DATA,
) -> None:
    """Find what events missed and repair it: one pass of the function of that name.

    Packs without their run, packs without thumbnails, what the second site lacks, what is past its
    retention, what nobody needs. A store or a Broker that is away or too busy is tried again for
    a minute. The exit status is 1 if anything is left to repair.
    """
    from stampede.cli.running import running, settings_of
    from stampede.functions.reconcile import Reconciler, patiently

    configure_logs()
    found = running(data.absolute())
    settings = settings_of(found)
    if found and not settings.sink:
        settings = settings.model_copy(update={"sink": found.urls.get("broker", "")})
    console, left = results_console(), 0

    def tell(what: "Found") -> None:
        nonlocal left
        left += not what.repaired
        done = "" if what.repaired else " (not repaired)"
        console.print(f"{what.what}: {what.key}{done}", highlight=False, soft_wrap=True)

    reconciler = Reconciler(settings, tell)

    def once() -> None:
        nonlocal left
        left = 0
        reconciler.run(not dry_run, everything)

    def again(error: StampedeError, pause: float) -> None:
        again = f"{error.message}: once more in {pause:.0f} s"
        console.print(again, style="yellow", highlight=False, markup=False, soft_wrap=True)

    patiently(once, again)
    if not left:
        console.print("nothing is left to repair", style="green")
    sys.exit(min(left, 1))
