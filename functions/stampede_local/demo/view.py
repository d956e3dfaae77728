"""One alert on the terminal of the demo: its cutouts as characters, its light curve as a table."""

import io
import json
import urllib.request
from collections import Counter
from typing import Any

from PIL import Image
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stampede.errors import StampedeError
from stampede_local.demo.oracle import ExpectedAlert

INK = " .:-=+*#%@"  # from dark to bright


def show_one(read: str, sent: list[ExpectedAlert], out: Console) -> list[str]:
    """Show the cutouts and the light curve of one alert; returns the paths of its pages."""
    complete = [alert for alert in sent if len(alert.cutouts) == 3]
    if not complete:
        return []
    points_of = Counter(alert.object_id for alert in complete)
    alert = max(complete, key=lambda one: points_of[one.object_id])
    cutout = f"/v1/alerts/{alert.alert_id}/cutouts/science"
    curve = f"/v1/objects/{alert.object_id}/lightcurve"
    paths = [f"/objects/{alert.object_id}", f"{cutout}?format=png&size=300", cutout, curve]
    try:
        pictures = [
            picture(
                get(f"{read}/v1/alerts/{alert.alert_id}/cutouts/{kind}?format=png"), out.is_terminal
            )
            for kind in ("science", "template", "difference")
        ]
        points = json.loads(get(f"{read}{curve}"))
    except (OSError, StampedeError) as error:
        out.print(f"{read}{curve}: {error}", style="bold red")
        return paths
    out.print(f"alert {alert.alert_id} of {alert.survey}: science, template, difference")
    grid = Table.grid(padding=(0, 2))
    grid.add_row(*pictures)
    out.print(grid)
    out.print(light_curve(alert.object_id, points))
    return paths


def get(url: str) -> bytes:
    """The body of an HTTP response."""
    with urllib.request.urlopen(url, timeout=30) as response:
        body: bytes = response.read()
    return body


def picture(png: bytes, colour: bool, width: int = 32) -> Text:
    """A picture as text: with colours two pixels per character, otherwise one shade of `INK`."""
    image = Image.open(io.BytesIO(png)).convert("L").resize((width, width))
    text = Text()
    if not colour:
        shades = [
            INK[value * len(INK) // 256] for value in image.resize((width, width // 2)).tobytes()
        ]
        lines = ("".join(shades[at : at + width]) for at in range(0, len(shades), width))
        return Text("\n".join(lines))
    for y in range(0, width, 2):
        for x in range(width):
            upper, lower = (image.getpixel((x, y + i)) for i in (0, 1))
            text.append("▀", f"rgb({upper},{upper},{upper}) on rgb({lower},{lower},{lower})")
        text.append("\n")
    return text


def light_curve(object_id: str, response: dict[str, Any]) -> Table:
    """The last points of a light curve."""
    points = response["detections"]
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", title_justify="left")
    table.title = f"light curve of {object_id}: the last of {len(points)} points"
    for heading in ("mjd (TAI)", "band", "flux / nJy", "error / nJy", "what"):
        table.add_column(heading, justify="left" if heading in ("band", "what") else "right")
    for point in points[-6:]:
        what = "forced" if point["forced"] else "limit" if point["limit"] else "detection"
        numbers = ["-" if point[n] is None else f"{point[n]:,.0f}" for n in ("flux", "flux_err")]
        table.add_row(f"{point['mjd']:.5f}", point["band"], *numbers, what)
    return table
