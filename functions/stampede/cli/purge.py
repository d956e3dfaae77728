"""`stampede purge`: remove what is of observing programmes that are not stored any more."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from stampede.cli.options import Data, results_console
from stampede.runtime.counts import counted


def purge(
    check: Annotated[
        bool, typer.Option("--check", help="only count: write and delete nothing")
    ] = False,
    incomplete: Annotated[
        bool,
        typer.Option(
            "--incomplete", help="also remove packets that cannot be cut: an image is not there"
        ),
    ] = False,
    data: Data = None,
) -> None:
    """Remove the rows and objects of programmes that STAMPEDE_ZTF_PROGRAMIDS does not name.

    Run it after you take a programme out of that setting, when every function has the new setting.
    Readers withhold such rows at once; this removes them from the store and from the second site:
    points of light curves, cutouts, thumbnails, raw copies and packets. A packet of an alert that
    is still stored stays, without the history rows of other programmes. Nothing brings back what
    is removed but the alerts themselves, sent again.

    It may be repeated and stopped at any time: the next call goes on. With `--check` the exit
    status is 1 if there is anything to remove.
    """
    from stampede.cli.running import running, settings_of
    from stampede.handlers.purge import found
    from stampede.handlers.purge import purge as remove
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()  # to stderr: stdout has the results alone
    settings = settings_of(running(data))
    counts = found(settings) if check else remove(settings, show, incomplete)
    console = results_console()
    for folder, number in sorted(counts.items()):
        runs = folder.startswith("tables/")
        how = (" with such rows" if check else " rewritten") if runs else ""
        text = f"{counted(number, 'run' if runs else 'object')}{how}"
        console.print(f"{folder}: {text}", highlight=False)
    if not counts:
        programids = settings.ztf_programids
        console.print(f"nothing is of other programmes than {programids}", style="green")
    sys.exit(1 if check and counts else 0)


def show(what: str) -> None:
    """Show on stderr what is read."""
    print(what, file=sys.stderr, flush=True)
