"""A server of the Model Context Protocol: for programs that read Stampede for people.

It speaks over stdin and stdout, only reads, and asks a Stampede server by the client: so that
server's tokens and limits are the only ones. Needs ``pip install 'stampede-client[mcp]'``.
"""

import argparse
import math
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from astropy.table import Table
from astropy.time import Time
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from stampede_client.client import Client, connect
from stampede_client.errors import BadInput, NotFound, StampedeClientError

T = TypeVar("T")

EXACT = 1 << 53
"""Integers up to which a JSON number is exact everywhere; larger ones become texts."""
MOST_ROWS = 500
"""Rows of one answer, which a model has to read."""
POINT = {
    "mjd": "time",
    **{
        name: name
        for name in (
            *("band", "flux", "flux_err", "mag", "mag_err", "forced", "limit", "limiting_mag"),
            *("source_id", "reliability"),
        )
    },
}
"""By the names that they get, the columns of a light curve."""
OBSERVATION = (
    *("mjd", "survey", "alert_id", "object_id", "ra", "dec", "band", "flux", "flux_err", "mag"),
    *("mag_err", "phase_angle", "helio_distance", "topo_distance", "predicted_mag", "offset"),
)
"""Columns of an observation of a moving object."""
ABOUT = """Alerts of a sky survey in a Stampede archive: light curves, cutout images, positions.
Ids have 64 bits: pass them as text. Fluxes are in nJy on the difference image and may be negative,
times are MJD in TAI, positions are ICRS degrees. There are no classifications and no
cross-matches. Call `docs` for all columns and routes."""


class Tools:
    """What a program may ask; each method is a tool, and its docstring what the program is told."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def search(self, text: str) -> dict[str, Any]:
        """Find what an id or a position means: an alert, an object, or the objects around a place.

        `text` is an alert id (diaSourceId, candid), an object id (diaObjectId, ssObjectId, or ZTF's
        such as ZTF21abiuvdk), or a position such as "10.68 41.27" or "00:03:15.4 +16:08:44".
        """
        text = text.strip()
        if " " in text:
            return {"objects": self.cone(text)["objects"]}
        found: dict[str, Any] = {}
        if text.isdigit():
            try:
                alert = self._client.alert(text, fields=())
                found["alert"] = {name: value for name, value in alert.items() if name != "fields"}
            except NotFound:
                pass
        try:
            found["object"] = self._summary(text)
        except NotFound as error:
            if not found:
                raise ToolError(f"no alert and no object has the id {text}") from error
        return found

    def light_curve(
        self,
        object_id: str,
        band: str | None = None,
        forced: bool | None = None,
        start: float | None = None,
        end: float | None = None,
        most: int = 200,
    ) -> dict[str, Any]:
        """The points of an object by time: detections, forced photometry and upper limits.

        `band` is one of u g r i z y; `forced` true gives forced photometry alone, false none of it;
        `start` and `end` are MJD (TAI). If there are more than `most` points, these are the latest.
        """
        chosen = {"band": band, "forced": forced, "start": start, "end": end}
        curve = self._client.lightcurve(object_id, magnitudes=True, **chosen)
        rows = _rows(curve[-_checked(most) :], POINT)
        return {"object_id": object_id, "points": len(curve), "shown": len(rows), "rows": rows}

    def moving_object(
        self,
        designation: str,
        band: str | None = None,
        start: float | None = None,
        end: float | None = None,
        most: int = 100,
    ) -> dict[str, Any]:
        """What alerts show of an asteroid or comet, by time: fluxes, distances, phase angle.

        `designation` is its number or designation as the Minor Planet Center writes it, such as
        "45685", "2011 UW158", "C/2017 K2" or "64P"; names such as Ceres are not known. `band`,
        `start` and `end` are as in `light_curve`. Distances are in au and the phase angle is in
        degrees; ztf sends neither, which is null. If there are more than `most` rows, these are the
        latest.
        """
        chosen: dict[str, Any] = {"band": band, "start": start, "end": end}
        table = self._client.moving(designation, magnitudes=True, **chosen)
        rows = _rows(table[-_checked(most) :], _same(OBSERVATION))
        name = table.meta["designation"]
        return {"designation": name, "observations": len(table), "shown": len(rows), "rows": rows}

    def cutout(self, alert_id: str, kind: str = "science", size: int = 252) -> Image:
        """The picture of an alert: its science, template or difference image, north up.

        `size` is the longer side in pixels, 1024 at most.
        """
        return Image(data=self._client.picture(alert_id, kind, size), format="png")

    def alert(self, alert_id: str, fields: list[str] | None = None) -> dict[str, Any]:
        """What is stored of an alert, with the fields as the survey sent them.

        `fields` are names at the top of the survey's schema, such as ["diaSource"] or
        ["candidate"]. Without them an alert has its whole history, which is long.
        """
        return self._client.alert(alert_id, fields=fields or ())

    def cone(self, position: str, radius: float = 5.0, most: int = 50) -> dict[str, Any]:
        """The objects within `radius` arcsec of a position, the nearest first.

        `position` is such as "10.68 41.27" (ICRS degrees) or "00:03:15.4 +16:08:44". An empty list
        says that nothing is stored there.
        """
        near = self._client.cone(position, radius)
        rows = _rows(near[: _checked(most)], _same(near.colnames))
        return {"objects": rows, "count": len(near), "shown": len(rows)}

    def recent(self, limit: int = 12) -> dict[str, Any]:
        """The latest alerts of the archive, 100 at most."""
        found = self._client.recent(limit)
        return {"alerts": _rows(found, _same(found.colnames))}

    def ledger(self) -> dict[str, Any]:
        """Which alerts are stored, dead-lettered or missing, by table and partition."""
        return self._client.ledger()

    def docs(self) -> str:
        """What the archive has, its routes, and the columns with their units."""
        return self._client.guide()

    def _summary(self, object_id: str) -> dict[str, Any]:
        curve = self._client.lightcurve(object_id)
        bands = np.ma.filled(np.ma.asarray(curve["band"]), "")
        return {
            "object_id": object_id,
            "survey": str(curve["survey"][0]),
            "points": len(curve),
            "bands": sorted({*map(str, bands)} - {""}),
            "first_mjd": float(curve.time[0].tai.mjd),
            "last_mjd": float(curve.time[-1].tai.mjd),
        }


def server_of(client: Client) -> MCPServer:
    """The server of these tools."""
    tools = Tools(client)
    server = MCPServer("stampede", instructions=ABOUT, log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in (
        *(tools.search, tools.light_curve, tools.moving_object, tools.cutout, tools.alert),
        *(tools.cone, tools.recent, tools.ledger, tools.docs),
    ):
        server.add_tool(_told(tool), annotations=reads)
    return server


def _told(tool: Callable[..., T]) -> Callable[..., T]:
    """The same tool; what the client says of a failure is told to the program."""

    @wraps(tool)
    def telling(*arguments: Any, **named: Any) -> T:
        try:
            return tool(*arguments, **named)
        except StampedeClientError as error:
            raise ToolError(str(error)) from error

    return telling


def _checked(most: int) -> int:
    """How many rows to give. Raises `BadInput`."""
    if not 1 <= most <= MOST_ROWS:
        raise BadInput(f"most is {most}; give a number from 1 to {MOST_ROWS}")
    return most


def _rows(table: Table, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows as JSON has them: times are MJD (TAI), ids texts; what is missing or NaN is null.

    `names` are the columns by the names that they get.
    """
    columns = [_values(table[name]) for name in names.values()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: Any) -> list[Any]:
    if isinstance(column, Time):
        return [float(mjd) for mjd in column.tai.mjd]
    values = np.ma.asarray(getattr(column, "value", column))
    if values.dtype == np.float32:  # with its few digits
        values = np.ma.array([float(str(each)) for each in values.data], mask=values.mask)
    return [_plain(each) for each in values.tolist()]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number and abs(value) >= EXACT else value


def _same(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in names}


def serve(url: str, token: str | None) -> None:
    """Serve over stdin and stdout until stdin ends. Raises `BadInput` if `url` is none.

    Where the Stampede server says that its answer may lack something, the tool fails and says so.
    """
    with connect(url, token, strict=True) as client:
        server_of(client).run("stdio")


def main(arguments: list[str] | None = None) -> None:
    """The command ``stampede-mcp``."""
    parser = argparse.ArgumentParser("stampede-mcp", description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="of the server, such as http://127.0.0.1:8080")
    parser.add_argument("--token", default=os.environ.get("STAMPEDE_TOKEN"), help="if it needs one")
    given = parser.parse_args(arguments)
    try:
        serve(given.url, given.token)
    except BadInput as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
