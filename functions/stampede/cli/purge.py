"""`stampede purge`: remove what is of programmes, or of an archive, not to be stored any more."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import Data, results_console
from stampede.runtime.counts import counted

if TYPE_CHECKING:
    from collections import Counter

    from stampede.config.settings import Settings


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
    archive: Annotated[
        str | None,
        typer.Option(help="remove the light curves of this archive instead (`stampede import`)"),
    ] = None,
    data: Data = None,
) -> None:
    """Remove the rows and objects of programmes that STAMPEDE_ZTF_PROGRAMIDS does not name.

    Run it after you take a programme out of that setting, when every function has the new setting.
    Readers withhold such rows at once; this removes them from the store and from the second site:
    points of light curves, cutouts, thumbnails, raw copies and packets. A packet of an alert that
    is still stored stays, without the history rows of other programmes. Nothing brings back what
    is removed but the alerts themselves, sent again.

    With `--archive` it removes the light curves that `stampede import` stored under this name, and
    nothing else, at both sites. To import the files again brings them back.

    It may be repeated and stopped at any time: the next call goes on. With `--check` the exit
    status is 1 if there is anything to remove.
    """
    from stampede.cli.running import running, settings_of
    from stampede.handlers.purge import found
    from stampede.handlers.purge import purge as remove
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()  # to stderr: stdout has the results alone
    settings = settings_of(running(data))
    if archive is not None:
        counts = _of_archive(settings, archive, check)
    else:
        counts = found(settings) if check else remove(settings, show, incomplete)
    console = results_console()
    for folder, number in sorted(counts.items()):
        runs = folder.startswith("tables/")
        how = (" with such rows" if check else " rewritten") if runs else ""
        text = f"{counted(number, 'run' if runs else 'object')}{how}"
        console.print(f"{folder}: {text}", highlight=False)
    if not counts:
        other = f"other programmes than {settings.ztf_programids}"
        what = other if archive is None else f"an archive {archive}"
        console.print(f"nothing is of {what}", style="green")
    sys.exit(1 if check and counts else 0)


def _of_archive(settings: Settings, archive: str, check: bool) -> Counter[str]:
    from stampede.archives.names import check_name
    from stampede.handlers.purge import found_of_archive, purge_archive
    from stampede.store.open import open_objects

    check_name(archive, open_objects(settings))  # never the points of a survey's alerts
    return found_of_archive(settings, archive) if check else purge_archive(settings, archive, show)


def show(what: str) -> None:
    """Show on stderr what is read."""
    print(what, file=sys.stderr, flush=True)
