"""Stampede beside its peers: its processes as `stampede up` starts them, without thumbnails."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stampede.events import functions_of
from stampede_bench.figures import Context
from stampede_bench.ingestion.ingest import (
    fill,
    paused,
    wait_until_complete,
    wait_until_stored,
)
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import Servers, pids, system
from stampede_bench.peers.meter import Meter, Spent
from stampede_local.process import Process

TITLE = "Stampede"
NOTE = (
    "both tables, packets, positions and alerts in their own columns; no thumbnails, no "
    "compaction. The CPU time is that of all its processes."
)
_LOOK_SECONDS = 1.0  # each look at the metrics takes CPU time


def store(
    context: Context, running: Servers, alerts: Load, warm: Sequence[bytes], name: str
) -> Spent:
    """Store the alerts, after those that `warm` the processes."""
    settings = running.settings(name).model_copy(
        update={"group": name, "kafka_options": {"session.timeout.ms": "300000"}}  # see `paused`
    )
    with system(context, name, settings, (name,)) as live:
        fill(settings, name, warm)
        wait_until_stored(live, len(warm))
        # `read` lists tables every 2 s, whether alerts come or not: that is no cost of an alert.
        with paused([live.processes["read"]]):
            with paused([live.processes[each] for each in functions_of(live.urls)]):
                fill(settings, name, alerts.messages)
                others = pids(list(live.processes.values()))
                meter = Meter(running, open_bucket(settings), others)
            total = len(warm) + len(alerts.messages)
            wait_until_stored(live, total, pause=_LOOK_SECONDS)
            spent = meter.end()
        wait_until_complete(settings, name)
    return spent


@contextmanager
def reader(
    context: Context, running: Servers, loads: Sequence[Load], name: str
) -> Iterator[tuple[Process, str]]:
    """`read` of a system that has stored these alerts, and its URL. The rest is paused."""
    settings = running.settings(name).model_copy(update={"group": name})
    with system(context, name, settings, (name,)) as live:
        for alerts in loads:
            fill(settings, name, alerts.messages)
        wait_until_stored(live, sum(len(alerts.messages) for alerts in loads))
        wait_until_complete(settings, name)
        process = live.processes["read"]
        with paused([each for each in live.processes.values() if each is not process]):
            yield process, live.urls["read"]


def cutout(alert_id: int) -> str:
    """Path of a cutout, as FITS."""
    return f"/v1/alerts/{alert_id}/cutouts/science"


def packet(alert_id: int) -> str:
    """Path of a packet."""
    return f"/v1/alerts/{alert_id}/packet"
