"""`stampede get`: what is stored, from the read service, to stdout or into files."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stampede.cli.options import Data
from stampede.runtime.counts import counted

if TYPE_CHECKING:
    from stampede.cli.download import Server


class Rows(StrEnum):
    """Formats of rows."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    VOTABLE = "votable"


class Matches(StrEnum):
    """Formats of the rows of a cross-match."""

    CSV = "csv"
    PARQUET = "parquet"


class Packet(StrEnum):
    """Formats of a packet."""

    AVRO = "avro"
    OCF = "ocf"
    JSON = "json"
    FITS = "fits"


Url = Annotated[
    str | None,
    typer.Option(help="of the server; without it the `stampede up` that runs here", metavar="URL"),
]
Token = Annotated[
    str | None, typer.Option(help="bearer token, if it demands one", envvar="STAMPEDE_TOKEN")
]

WITH_ALERT = "alert"
"""With this --asof the ids are those of alerts."""


@dataclass(frozen=True)
class Place:
    """Where the answers come from. Its attributes are options of each command."""

    url: Url = None
    token: Token = None
    data: Data = None

    def server(self) -> Server:
        """The server of --url, or the one that runs. Raises `SetupError`."""
        from stampede.cli.download import Server
        from stampede.cli.running import running
        from stampede.errors import SetupError

        url = self.url
        if url is None:
            system = running(self.data)
            url = system.urls.get("read") if system else None
        if url is None:
            raise SetupError("no `stampede up` runs here: start it, or give the server with --url")
        if not url.startswith(("http://", "https://")):
            raise SetupError(f"{url!r} is no URL of a server: give one like http://127.0.0.1:8080")
        return Server(url, self.token)


def _of_place(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `Place`, which make its argument `place`."""

    signatures = (inspect.signature(each, eval_str=True) for each in (command, Place))
    own, options = (signature.parameters for signature in signatures)

    @wraps(command)
    def with_options(**given: Any) -> None:
        place = Place(**{name: given.pop(name) for name in options})
        command(place=place, **given)

    shown = [each for each in (*own.values(), *options.values()) if each.name != "place"]
    with_options.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return with_options


Out = Annotated[Path | None, typer.Option(help="file to write; without it stdout")]
Format = Annotated[Rows, typer.Option("--format", help="of the rows")]

get = typer.Typer(
    help="Get what is stored: objects by position, light curves, images, alerts.\n\n"
    "    stampede get recent\n\n"
    "    stampede get cone '00:03:15.4 +16:08:44' --radius 5\n\n"
    "    stampede get lightcurve ZTF21abiuvdk --out curve.csv\n\n"
    "    stampede get moving '2011 UW158' --magnitudes\n\n"
    "The exit status is 1 if the answer may lack something; stderr says why.",
    no_args_is_help=True,
)


@get.command(context_settings={"ignore_unknown_options": True})  # a Dec may begin with -
@_of_place
def cone(
    place: Place,
    position: Annotated[
        list[str], typer.Argument(help="RA and Dec, ICRS: 0.814 16.146 or 00:03:15.4 +16:08:44")
    ],
    radius: Annotated[str, typer.Option(help="arcsec, or with a unit: 2arcmin, 1deg")] = "5",
    format: Format = Rows.CSV,
    out: Out = None,
) -> None:
    """Get the objects around a position, the nearest first."""
    ra, dec = _parted(" ".join(position))
    query = {"ra": ra, "dec": dec, "radius": radius, "format": format}
    _rows("/v1/cone", query, None, out, place.server())


@get.command()
@_of_place
def match(
    place: Place,
    file: Annotated[
        Path, typer.Argument(help="CSV or Parquet with the columns ra and dec, ICRS degrees")
    ],
    radius: Annotated[
        str, typer.Option(help="arcsec, or with a unit: 0.5arcmin; up to 60 arcsec")
    ] = "5",
    format: Annotated[Matches, typer.Option("--format", help="of the rows")] = Matches.CSV,
    out: Out = None,
) -> None:
    """Get the objects around each position in a file: a cross-match.

    Each object is a row. Its column `position` is the number of the row of the file, from 0.
    """
    from stampede.cli.files.positions import read_positions

    body = {"positions": read_positions(file)}
    query = {"radius": radius, "format": str(format)}
    _rows("/v1/cone", query, body, out, place.server())


@get.command()
@_of_place
def lightcurve(
    place: Place,
    object_ids: Annotated[
        list[str], typer.Argument(help="one object, or several; - reads ids from stdin")
    ],
    magnitudes: Annotated[
        bool, typer.Option("--magnitudes", help="also the columns mag and mag_err")
    ] = False,
    asof: Annotated[
        str | None,
        typer.Option(
            help="only what the survey had told at this MJD (TAI) or, of one object, with this "
            f"alert of it; {WITH_ALERT!r}: the ids are of alerts, and what it had told with each",
            metavar="MJD|ALERT",
        ),
    ] = None,
    survey: Annotated[
        str | None, typer.Option(help="only points of this survey or imported archive")
    ] = None,
    format: Format = Rows.CSV,
    out: Out = None,
) -> None:
    """Get the light curve of an object, or of several in one table."""
    from urllib.parse import quote

    query = {"format": str(format)} | ({"magnitudes": "true"} if magnitudes else {})
    query |= {} if asof is None else {"asof": asof}
    query |= {} if survey is None else {"survey": survey}
    server, ids = place.server(), _ids(object_ids)
    if len(ids) == 1 and asof != WITH_ALERT:
        path = f"/v1/objects/{quote(ids[0], safe='')}/lightcurve"
        _rows(path, query, None, out, server)
    else:
        _rows("/v1/lightcurves", query, {"ids": ids}, out, server)


@get.command()
@_of_place
def moving(
    place: Place,
    designation: Annotated[
        str,
        typer.Argument(
            help="number or designation of an asteroid or comet: 45685, '2011 UW158', 'C/2017 K2'"
        ),
    ],
    survey: Annotated[str | None, typer.Option(help="only alerts of this survey")] = None,
    band: Annotated[str | None, typer.Option(help="only these bands: g or g,r")] = None,
    magnitudes: Annotated[
        bool, typer.Option("--magnitudes", help="also the columns mag and mag_err")
    ] = False,
    format: Format = Rows.CSV,
    out: Out = None,
) -> None:
    """Get what alerts show of a body of the solar system, by time.

    Any form of the Minor Planet Center will do: 2011UW158, K11UF8W, (45685). Names are not known.
    """
    from urllib.parse import quote

    chosen = {"survey": survey, "band": band, "magnitudes": "true" if magnitudes else None}
    query = {name: value for name, value in chosen.items() if value is not None}
    path = f"/v1/moving/{quote(designation, safe='')}"
    _rows(path, query | {"format": str(format)}, None, out, place.server())


@get.command()
@_of_place
def cutouts(
    place: Place,
    alert_ids: Annotated[
        list[str], typer.Argument(help="one alert, or several; - reads ids from stdin")
    ],
    out: Annotated[Path, typer.Option(help="folder, in which each alert gets one")] = Path(),
) -> None:
    """Get the images of alerts as FITS files: OUT/ALERT/science.fits.gz and so on.

    An alert that has a folder is not asked for again: the same command goes on where it stopped.
    An alert with a damaged image gets no folder.
    """
    from stampede.cli.files.cutout_files import fetch

    ids, server = _ids(alert_ids), place.server()
    with _to_the_end():
        found = fetch(server, ids, out, lambda line: typer.echo(line, err=True))
    there = f"; {counted(found.there, 'alert')} there before" if found.there else ""
    typer.echo(f"{counted(found.files, 'file')} in {out}/{there}", err=True)
    for reason, absent in found.absent.items():
        listed = ", ".join(map(str, absent))
        typer.echo(f"stampede: {reason.replace('_', ' ')}: {listed}", err=True)
    if found.absent.keys() - {"no_such_cutouts"}:  # those that the survey did not send
        sys.exit(1)


@get.command()
@_of_place
def packet(
    place: Place,
    alert_id: str,
    format: Annotated[
        Packet,
        typer.Option(
            "--format",
            help="avro: as the survey sent it; ocf: an Avro container with its schema; json; fits: "
            "all images in one file",
        ),
    ] = Packet.AVRO,
    out: Out = None,
) -> None:
    """Get the Avro message of an alert, byte for byte as the survey sent it."""
    path, server = _of_alert(alert_id, "packet"), place.server()
    kind = "json" if format == Packet.JSON else "packet"
    _rows(path, {} if format == Packet.AVRO else {"format": format}, None, out, server, kind)


@get.command()
@_of_place
def schema(place: Place, alert_id: str, out: Out = None) -> None:
    """Get the Avro schema of an alert as JSON."""
    _rows(_of_alert(alert_id, "schema"), {}, None, out, place.server())


@get.command()
@_of_place
def recent(
    place: Place,
    limit: Annotated[int, typer.Option(min=1, max=100, help="how many at most")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on a terminal too")] = False,
    out: Out = None,
) -> None:
    """Get the latest alerts: a table on a terminal, otherwise JSON."""
    query, server = {"limit": str(limit)}, place.server()
    if out or as_json or not sys.stdout.isatty():
        _rows("/v1/alerts", query, None, out, server)
        return
    from stampede.cli.download import INCOMPLETE

    with server.answer("/v1/alerts", query) as response:
        for line in recent_lines(response.json()["alerts"]):
            typer.echo(line)
        lacking = response.headers.get(INCOMPLETE)
    if lacking:
        typer.echo(f"stampede: the answer may lack something: {lacking}", err=True)
        sys.exit(1)


def recent_lines(alerts: list[dict[str, Any]]) -> Iterator[str]:
    """A table of alerts as lines, with the time in UTC; a sentence if there are none."""
    from datetime import UTC, datetime

    from stampede.runtime.timescale import MJD_TAI_OF_1970

    def observed(mjd: float) -> str:
        return f"{datetime.fromtimestamp(86400 * (mjd - MJD_TAI_OF_1970), UTC):%Y-%m-%d %H:%M:%S}"

    if not alerts:
        yield "no alert is stored yet"
        return
    rows = [
        (
            str(each["alert_id"]),
            str(each["survey"]),
            str(each["object_id"]),
            observed(each["mjd"]),
            str(each["band"] or ""),
        )
        for each in alerts
    ]
    heads = ("alert", "survey", "object", "observed (UTC)", "band")
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _of_alert(alert_id: str, what: str) -> str:
    """The path of something of an alert."""
    from urllib.parse import quote

    return f"/v1/alerts/{quote(alert_id, safe='')}/{what}"


def _ids(given: list[str]) -> list[str]:
    """The ids that were given, or those on stdin."""
    return sys.stdin.read().split() if given == ["-"] else given


def _rows(
    path: str,
    query: dict[str, str],
    body: dict[str, Any] | None,
    out: Path | None,
    server: Server,
    kind: str = "",
) -> None:
    from stampede.cli.download import copy

    with _to_the_end():
        if not copy(server, path, query, body, out, kind or query.get("format", "json")):
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
        raise SetupError(f"{position!r} is no position: give 0.814 16.146 or 00:03:15.4 +16:08:44")
    half = len(words) // 2
    return ":".join(words[:half]), ":".join(words[half:])


@_of_place
def mcp(place: Place) -> None:
    """Let programs that read for people ask what is stored: a server of the Model Context Protocol.

    It speaks over stdin and stdout, only reads, and asks the server of --url, whose tokens and
    limits hold. Needs `pip install 'stampede-client[mcp]'`.
    """
    from stampede.errors import SetupError

    server = place.server()
    try:
        from stampede_client.mcp_server import serve
    except ModuleNotFoundError as error:
        raise SetupError(
            f"there is no module {error.name}: pip install 'stampede-client[mcp]'"
        ) from None
    serve(server.url, server.token)
