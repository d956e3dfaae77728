"""`stampede demo`: alerts from Kafka to HTTP on this machine, shown and checked in a minute."""

import gzip
import json
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from stampede.cli.audit import entries_of
from stampede.cli.options import progress_console, results_console
from stampede.cli.reports.ledger_report import report
from stampede.config.topics import Topics
from stampede.handlers.audit.status import Status
from stampede.ingest import files
from stampede.runtime.counts import counted
from stampede_local.demo.oracle import ExpectedAlert, digest, expected_alert
from stampede_local.demo.view import show_one
from stampede_local.kafka import producer
from stampede_local.plan import SystemPlan
from stampede_local.system import System
from stampede_local.up import running_system, show, stopping
from stampede_simulator.simulator import Mix, Simulator

STALLED_SECONDS = 90.0
CHUNK = 200  # ids in one query


def demo(plan: SystemPlan, count: int, alerts_from: Path | None, seed: int) -> int:
    """Run the demo. Returns the exit status, 0 if nothing is missing or wrong."""
    console, out = progress_console(), results_console()
    if alerts_from:
        files.find([alerts_from])  # raises now, not after half a minute
    with stopping() as stop, running_system(plan, console, stop) as system:
        topics, sent = send(system, console, count, alerts_from, seed, stop)
        if not wait(system, console, topics, stop):
            return 130 if stop.is_set() else 1
        out.rule("the ledger: received = stored + dead letters")
        missing = report(entries_of(system.settings, Topics(tuple(topics))), out)
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
    """Send the alerts to Kafka; returns the topics and the expected content of each valid alert."""
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
        simulator = Simulator(seed, mix=Mix(solar_system=0.05, null_cutouts=0.01))
        for alert in simulator.alerts(count):
            yield (lsst if alert.survey == "lsst" else ztf), alert.body
        return
    for file in files.read(files.find([alerts_from])):
        yield (lsst if file.data[:1] == b"\0" else ztf), file.data


def wait(system: System, console: Console, topics: list[str], stop: threading.Event) -> bool:
    """Wait until everything in Kafka is accounted for. Returns False if that stalls."""
    status = Status(system.settings, system.urls, system.supervisor.states)
    with Progress(
        TextColumn("storing         "),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
    ) as progress:
        task = progress.add_task("", total=None, text="")
        best, since = -1, time.monotonic()
        while not stop.wait(0.5):
            entries = entries_of(system.settings, Topics(tuple(topics)))
            expected = sum(entry.received for entry in entries)
            waiting = sum(entry.missing_count + entry.in_flight_count for entry in entries)
            done = expected - waiting
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
    """Fetch all cutouts and light curves; returns how many differ from those that were sent."""
    alerts = {(alert.survey, alert.alert_id): alert for alert in sent}
    expected = {
        (survey, alert_id, kind): value
        for (survey, alert_id), alert in alerts.items()
        for kind, value in alert.cutouts.items()
    }
    fetched = fetched_cutouts(read, {str(alert_id) for _, alert_id in alerts})
    wrong = [
        f"{kind} cutout of {survey} alert {alert_id}"
        for (survey, alert_id, kind), value in expected.items()
        if fetched.get((survey, alert_id, kind)) != value
    ]
    objects = {alert.object_id for alert in sent}
    points = fetched_points(read, objects)
    wrong += [
        f"point {alert.alert_id} of the light curve of {alert.object_id}"
        for alert in alerts.values()
        if (alert.survey, alert.object_id, alert.alert_id) not in points
    ]
    out.print(
        f"{counted(expected, 'cutout')} of {counted(alerts, 'alert')}, "
        f"light curves of {counted(objects, 'object')} with {counted(points, 'point')}"
    )
    for description in wrong[:20]:
        out.print(f"not as it was sent: {description}", style="bold red")
    if wrong:
        out.print(f"{len(wrong):,} are not as they were sent", style="bold red")
    else:
        out.print("every cutout is byte for byte what was sent, no point is missing", style="green")
    return len(wrong)


def fetched_cutouts(read: str, alert_ids: set[str]) -> dict[tuple[str, int, str], bytes]:
    """Digest of each FITS file by survey, alert id and kind."""
    return {
        (row["survey"], row["alert_id"], row["kind"]): digest(gzip.decompress(row["fits"]))
        for chunk in chunks(sorted(alert_ids))
        for row in rows(f"{read}/v1/cutouts?format=arrow", chunk)
        if row["fits"] is not None
    }


def fetched_points(read: str, object_ids: set[str]) -> set[tuple[str, str, int]]:
    """Survey, object id and source id of each point of the light curves."""
    return {
        (row["survey"], row["object_id"], row["source_id"])
        for chunk in chunks(sorted(object_ids))
        for row in rows(f"{read}/v1/lightcurves?format=arrow", chunk)
    }


def rows(url: str, ids: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of the Arrow answer to a query for many ids."""
    body = json.dumps({"ids": ids}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        for batch in pa.ipc.open_stream(response):
            yield from batch.to_pylist()


def chunks(ids: list[str]) -> Iterator[list[str]]:
    """`ids` in lists of `CHUNK`."""
    for at in range(0, len(ids), CHUNK):
        yield ids[at : at + CHUNK]
