"""`stampede get`: what is stored, from the read service, to stdout or into files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import Data

if TYPE_CHECKING:
    from stampede.cli.download import Server


class Rows(StrEnum):
    """Formats of rows."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    VOTABLE = "votable"


Url = Annotated[
    str | None,
    typer.Option(help="of the server; without it the `stampede up` that runs here", metavar="URL"),
]
Token = Annotated[
    str | None, typer.Option(help="bearer token, if it demands one", envvar="STAMPEDE_TOKEN")
]
Out = Annotated[Path | None, typer.Option(help="file to write; without it stdout")]
Format = Annotated[Rows, typer.Option("--format", help="of the rows")]

get = typer.Typer(
    help="Get what is stored: objects by position, light curves, images, alerts.\n\n"
    "    stampede get recent\n\n"
    "    stampede get cone '00:03:15.4 +16:08:44' --radius 5\n\n"
    "    stampede get lightcurve ZTF21abiuvdk --out curve.csv\n\n"
    "The exit status is 1 if the answer may lack something; stderr says why.",
    no_args_is_help=True,
)


@get.command()
def cone(
    position: Annotated[
        str, typer.Argument(help="RA and Dec, ICRS: '0.814 16.146' or '00:03:15.4 +16:08:44'")
    ],
    radius: Annotated[str, typer.Option(help="arcsec, or with a unit: 2arcmin, 1deg")] = "5",
    format: Format = Rows.CSV,
    out: Out = None,
    url: Url = None,
    token: Token = None,
    data: Data = None,
) -> None:
    """Get the objects around a position, the nearest first."""
    ra, dec = _parted(position)
    query = {"ra": ra, "dec": dec, "radius": radius, "format": format}
    _rows("/v1/cone", query, None, out, _server(url, token, data))


@get.command()
def lightcurve(
    object_ids: Annotated[list[str], typer.Argument(help="one object, or several")],
    magnitudes: Annotated[
        bool, typer.Option("--magnitudes", help="also the columns mag and mag_err")
    ] = False,
    format: Format = Rows.CSV,
    out: Out = None,
    url: Url = None,
    token: Token = None,
    data: Data = None,
) -> None:
    """Get the light curve of an object, or of several in one table."""
    from urllib.parse import quote

    query = {"format": str(format)} | ({"magnitudes": "true"} if magnitudes else {})
    server = _server(url, token, data)
    if len(object_ids) == 1:
        path = f"/v1/objects/{quote(object_ids[0], safe='')}/lightcurve"
        _rows(path, query, None, out, server)
    else:
        _rows("/v1/lightcurves", query, object_ids, out, server)


@get.command()
def cutouts(
    alert_ids: Annotated[
        list[str], typer.Argument(help="one alert, or several; - reads ids from stdin")
    ],
    out: Annotated[Path, typer.Option(help="folder, in which each alert gets one")] = Path(),
    url: Url = None,
    token: Token = None,
    data: Data = None,
) -> None:
    """Get the images of alerts as FITS files: OUT/ALERT/science.fits.gz and so on.

    An alert that has a folder is not asked for again: the same command goes on where it stopped.
    An alert with a damaged image gets no folder.
    """
    from stampede.cli.cutout_files import fetch

    ids = sys.stdin.read().split() if alert_ids == ["-"] else alert_ids
    server = _server(url, token, data)
    with _to_the_end():
        found = fetch(server, ids, out, lambda line: typer.echo(line, err=True))
    there = f"; {found.there} alerts were there" if found.there else ""
    typer.echo(f"{found.files} files in {out}/{there}", err=True)
    for reason, absent in found.absent.items():
        listed = ", ".join(map(str, absent))
        typer.echo(f"stampede: {reason.replace('_', ' ')}: {listed}", err=True)
    if found.absent.keys() - {"no_such_cutouts"}:  # those that the survey did not send
        sys.exit(1)


@get.command()
def packet(
    alert_id: str,
    out: Out = None,
    url: Url = None,
    token: Token = None,
    data: Data = None,
) -> None:
    """Get the Avro message of an alert, byte for byte as the survey sent it."""
    from urllib.parse import quote

    path = f"/v1/alerts/{quote(alert_id, safe='')}/packet"
    _rows(path, {}, None, out, _server(url, token, data), "packet")


@get.command()
def recent(
    limit: Annotated[int, typer.Option(min=1, max=100, help="how many at most")] = 12,
    out: Out = None,
    url: Url = None,
    token: Token = None,
    data: Data = None,
) -> None:
    """Get the latest alerts as JSON."""
    _rows("/v1/alerts", {"limit": str(limit)}, None, out, _server(url, token, data))


def _rows(
    path: str,
    query: dict[str, str],
    ids: list[str] | None,
    out: Path | None,
    server: Server,
    kind: str = "",
) -> None:
    from stampede.cli.download import copy

    with _to_the_end():
        if not copy(server, path, query, ids, out, kind or query.get("format", "json")):
            sys.exit(1)


@contextmanager
def _to_the_end() -> Iterator[None]:
    """Exit with 1 where a response breaks off: it lacks something."""
    from stampede.cli.download import BrokenOff

    try:
        yield
    except BrokenOff as error:
        typer.echo(f"stampede: {error.message}", err=True)
        sys.exit(1)


def _parted(position: str) -> tuple[str, str]:
    """RA and Dec of a position: two words, or six."""
    from stampede.errors import SetupError

    words = position.replace(",", " ").split()
    if len(words) not in (2, 6):
        raise SetupError(
            f"{position!r} is no position: give '0.814 16.146' or '00:03:15.4 +16:08:44'"
        )
    half = len(words) // 2
    return ":".join(words[:half]), ":".join(words[half:])


def _server(url: str | None, token: str | None, data: Path | None) -> Server:
    """The server of --url, or the one that runs. Raises `SetupError`."""
    from stampede.cli.download import Server
    from stampede.cli.running import running
    from stampede.errors import SetupError

    if url is None:
        system = running(data)
        url = system.urls.get("read") if system else None
    if url is None:
        raise SetupError("no `stampede up` runs here: start it, or give the server with --url")
    if not url.startswith(("http://", "https://")):
        raise SetupError(f"{url!r} is no URL of a server: give one like http://127.0.0.1:8080")
    return Server(url, token)
