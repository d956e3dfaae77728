"""`stampede publish`: the store as a catalogue that other programs open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stampede.cli.options import Data
from stampede.runtime.counts import counted

publish = typer.Typer(help="Snapshots that other programs open.", no_args_is_help=True)


@publish.callback()
def _group() -> None:
    """Snapshots that other programs open."""


@publish.command()
def hats(
    place: Annotated[
        str,
        typer.Argument(
            help="a folder, or a bucket of its own as http(s)://HOST:PORT/BUCKET; "
            "its last part is the name of the catalogue",
            metavar="FOLDER|URL",
        ),
    ],
    again: Annotated[
        bool, typer.Option("--again", help="write all pixels, not only those with new points")
    ] = False,
    data: Data = None,
) -> None:
    """Write all objects with their light curves as a HATS catalogue, for LSDB and others.

    Of the `stampede up` that is running, or of the store of STAMPEDE_STORE. A second call writes
    only the HEALPix pixels of objects that have new points, and can go on after one that was
    stopped. A bucket must be there, and the keys of the store must be allowed to write to it.
    """
    from stampede.cli.running import running, settings_of
    from stampede.handlers.hats.catalogue import open_catalogue
    from stampede.handlers.hats.catalogue import publish as publish_catalogue
    from stampede.store.open import open_objects
    from stampede.store.programmes.rights import Rights
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()
    settings = settings_of(running(data))
    url = place if "://" in place else Path(place).absolute().as_uri()
    files, name = open_catalogue(settings, url)
    rights = Rights.of(settings)
    done = publish_catalogue(open_objects(settings), files, name, again=again, rights=rights)
    typer.echo(
        f"{counted(done.objects, 'object')} with {counted(done.points, 'point')} in "
        f"{counted(done.pixels, 'pixel')} up to order "
        f"{done.order}; {counted(done.moving, 'moving object')} apart; "
        f"{counted(done.written, 'pixel')} written"
    )
