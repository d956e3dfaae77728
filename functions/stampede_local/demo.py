"""`stampede demo`: alerts from Kafka to HTTP on this machine, shown and checked in a minute."""

import gzip
import io
import json
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from stampede.cli.audit import entries_of, report
from stampede.cli.options import progress_console, results_console
from stampede.errors import StampedeError
from stampede.ingest import files
from stampede.simulator.simulator import Simulator
from stampede_local.kafka import producer
from stampede_local.oracle import ExpectedAlert, digest, expected_alert
from stampede_local.plan import SystemPlan
from stampede_local.status import Status
from stampede_local.system import System
from stampede_local.up import running_system, show, stopping

STALLED_SECONDS = 90.0
CHUNK = 200  # ids in one query
INK = " .:-=+*#%@"  # from dark to bright


def demo(plan: SystemPlan, count: int, alerts_from: Path | None, seed: int) -> int:
    """Run the demo. Returns the exit status, 0 if nothing is missing or wrong."""
    console, out = progress_console(), results_console()
    if alerts_from:
        files.find([alerts_from])  # raises now, not after half a minute
    with running_system(plan, console) as system, stopping() as stop:
        topics, sent = send(system, console, count, alerts_from, seed, stop)
        if not wait(system, console, topics, stop):
            return 130 if stop.is_set() else 1
        out.rule("the ledger: received = stored + dead letters")
        missing = report(entries_of(system.settings, topics), out)
        out.rule("fetched back over HTTP")
        wrong = compare(system.urls["read"], sent, out)
        shown = show_one(system.urls["read"], sent, out)
        out.rule("look around")
        for path in ("/", *shown):
            out.print(f"{system.urls['read']}{path}", soft_wrap=True)
        if sys.stdin.isatty() and console.is_terminal and not stop.is_set():
            show(system, console, stop)
        return 1 if missing or wrong else 0


def send(
    system: System,
    console: Console,
    count: int,
    alerts_from: Path | None,
    seed: int,
    stop: threading.Event,
) -> tuple[list[str], list[ExpectedAlert]]:
    """Send the alerts to Kafka; the topics, and what to expect of each valid alert."""
    sent = []
    kafka = producer(system.settings.kafka)
    with Progress(
        TextColumn("sending to Kafka"),
        BarColumn(),
        TextColumn("{task.completed:,} alerts"),
        console=console,
    ) as progress:
        task = progress.add_task("", total=None if alerts_from else count)
        for topic, body in messages(system, count, alerts_from, seed):
            if stop.is_set():
                break
            kafka.produce(topic, body)
            kafka.poll(0)
            if alert := expected_alert(body):
                sent.append(alert)
            progress.advance(task)
        kafka.flush(60)
    console.print(f"         {progress.tasks[0].completed:,.0f} alerts are in Kafka")
    return list(system.plan.topics), sent


def messages(
    system: System, count: int, alerts_from: Path | None, seed: int
) -> Iterator[tuple[str, bytes]]:
    """Topic and bytes of each alert, simulated or from files."""
    lsst, ztf = system.plan.topics
    if alerts_from is None:
        simulator = Simulator(seed, solar_system=0.05, null_cutouts=0.01)
        for alert in simulator.alerts(count):
            yield (lsst if alert.survey == "lsst" else ztf), alert.body
        return
    for found in files.read(files.find([alerts_from])):
        yield (lsst if found.data[:1] == b"\0" else ztf), found.data


def wait(system: System, console: Console, topics: list[str], stop: threading.Event) -> bool:
    """Wait until everything in Kafka is accounted for. Returns False if that stalls."""
    status = Status(system)
    with Progress(
        TextColumn("storing         "),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
    ) as progress:
        task = progress.add_task("", total=None, text="")
        best, since = -1, time.monotonic()
        while not stop.wait(0.5):
            entries = entries_of(system.settings, topics)
            expected = sum(entry.high - entry.low for entry in entries)
            done = expected - sum(entry.missing_count for entry in entries)
            view = status.read()
            rates = ", ".join(f"{flow.function} {flow.per_second:,.0f}/s" for flow in view.flows)
            text = f"{done:,} of {expected:,} entries in both tables   {rates}"
            progress.update(task, total=expected, completed=done, text=text)
            if done >= expected:
                return True
            if done > best:
                best, since = done, time.monotonic()
            elif time.monotonic() - since > STALLED_SECONDS:
                console.print(
                    f"nothing was stored for {STALLED_SECONDS:.0f} s; see {system.plan.data}/logs",
                    style="bold red",
                )
                report(entries, console)
                return False
    return False


def compare(read: str, sent: list[ExpectedAlert], out: Console) -> int:
    """Fetch all cutouts and light curves and compare them with what was sent; the number wrong."""
    wrong: list[str] = []
    alerts = {(alert.survey, alert.alert_id): alert for alert in sent}
    expected = {
        (survey, alert_id, kind): value
        for (survey, alert_id), alert in alerts.items()
        for kind, value in alert.cutouts.items()
    }
    found = {}
    for chunk in chunks(sorted({str(alert_id) for _, alert_id in alerts})):
        for row in rows(f"{read}/v1/cutouts?format=arrow", chunk):
            if row["fits"] is not None:
                key = (row["survey"], row["alert_id"], row["kind"])
                found[key] = digest(gzip.decompress(row["fits"]))
    wrong += [f"{kind} cutout of {survey} alert {alert_id}"
              for (survey, alert_id, kind), value in expected.items()
              if found.get((survey, alert_id, kind)) != value]  # fmt: skip
    points = set()
    objects = {alert.object_id for alert in sent}
    for chunk in chunks(sorted(objects)):
        for row in rows(f"{read}/v1/lightcurves?format=arrow", chunk):
            points.add((row["survey"], row["object_id"], row["source_id"]))
    wrong += [f"point {alert.alert_id} of the light curve of {alert.object_id}"
              for alert in alerts.values()
              if (alert.survey, alert.object_id, alert.alert_id) not in points]  # fmt: skip
    out.print(
        f"{len(expected):,} cutouts of {len(alerts):,} alerts, "
        f"light curves of {len(objects):,} objects with {len(points):,} points"
    )
    for description in wrong[:20]:
        out.print(f"not as it was sent: {description}", style="bold red")
    if wrong:
        out.print(f"{len(wrong):,} are not as they were sent", style="bold red")
    else:
        out.print("every cutout is byte for byte what was sent, no point is missing", style="green")
    return len(wrong)


def rows(url: str, ids: list[str]) -> Iterator[dict]:
    """Rows of the Arrow answer to a query for many ids."""
    body = json.dumps({"ids": ids}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        for batch in pa.ipc.open_stream(answer):
            yield from batch.to_pylist()


def chunks(ids: list[str]) -> Iterator[list[str]]:
    """`ids` in lists of `CHUNK`."""
    for at in range(0, len(ids), CHUNK):
        yield ids[at : at + CHUNK]


def show_one(read: str, sent: list[ExpectedAlert], out: Console) -> list[str]:
    """Show one alert's cutouts and its light curve; the paths at which to look at them."""
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
    """The body of an HTTP answer."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


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


def light_curve(object_id: str, answer: dict) -> Table:
    """The last points of a light curve."""
    points = answer["detections"]
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", title_justify="left")
    table.title = f"light curve of {object_id}: the last of {len(points)} points"
    for heading in ("mjd (TAI)", "band", "flux / nJy", "error / nJy", "what"):
        table.add_column(heading, justify="left" if heading in ("band", "what") else "right")
    for point in points[-6:]:
        what = "forced" if point["forced"] else "limit" if point["limit"] else "detection"
        numbers = ["-" if point[n] is None else f"{point[n]:,.0f}" for n in ("flux", "flux_err")]
        table.add_row(f"{point['mjd']:.5f}", point["band"], *numbers, what)
    return table
