"""`stampede up`: everything on this machine, on one screen, until Ctrl-C."""

import os
import queue
import signal
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from stampede.cli.running import Running
from stampede.errors import StampedeError
from stampede_local.dashboard import line, screen
from stampede_local.plan import SystemPlan
from stampede_local.ports import free_port
from stampede_local.process import Process
from stampede_local.status import View, Watch
from stampede_local.supervisor import State
from stampede_local.system import System

LOOK_SECONDS = 2.0
LINE_SECONDS = 10.0
TIMES = {"compact": 20.0, "reconcile": 60.0}  # seconds between events to each


def up(plan: SystemPlan, console: Console) -> None:
    """Start everything and show it until SIGTERM or Ctrl-C."""
    with running_system(plan, console) as system, stopping() as stop:
        show(system, console, stop)


@contextmanager
def running_system(plan: SystemPlan, console: Console) -> Iterator[System]:
    """The system, with its timers; what it says goes to the console."""
    begin = time.monotonic()

    def say(text: str) -> None:
        when = Text(f"{time.monotonic() - begin:6.1f} s", style="dim")
        console.print(when, Text(text), sep="  ", soft_wrap=not console.is_terminal)

    def report(process: Process, state: State) -> None:
        if state is State.WAITING:
            say(f"{process.name} ended with status {process.status}: starting it again")
            say(f"  its log: {process.log}")

    with System(plan, say, report) as system, timer(system):
        say(f"ready: {system.urls['read']}/")
        yield system


def show(system: System, console: Console, stop: threading.Event) -> None:
    """The screen, or where there is no terminal a line now and then, until told to stop."""
    if not console.is_terminal:
        for view in views(system, console, LINE_SECONDS, stop):
            console.print(line(view), highlight=False, soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for view in views(system, console, LOOK_SECONDS, stop):
            live.update(screen(view, system), refresh=True)


def views(
    system: System, console: Console, seconds: float, stop: threading.Event
) -> Iterator[View]:
    """The system as it is, every so many seconds, until told to stop.

    It is looked at by a thread of its own: a store that is away is waited for long, and whoever
    says stop should not wait with it. That it is away is a line on the screen, not its end.
    """
    seen: queue.SimpleQueue[View] = queue.SimpleQueue()

    def look() -> None:
        watch = Watch(system)
        while not stop.is_set():
            try:
                seen.put(watch.look())
            except StampedeError as error:
                if not stop.is_set():
                    console.print(error.message, style="yellow", markup=False, highlight=False)
            stop.wait(seconds)

    threading.Thread(target=look, name="watch", daemon=True).start()
    while not stop.is_set():
        with suppress(queue.Empty):
            yield seen.get(timeout=0.2)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set, instead of killing or raising."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def timer(system: System) -> Iterator[None]:
    """Sends `compact` and `reconcile` an event now and then, as PingSources do on a cluster."""
    stop = threading.Event()

    def ring(name: str, seconds: float) -> None:
        while not stop.wait(seconds):
            # It may just be starting again; there will be another.
            with suppress(OSError, HTTPException):
                send(name, system.urls[name])

    for each in TIMES.items():
        threading.Thread(target=ring, args=each, name=f"timer of {each[0]}", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def send(name: str, url: str) -> None:
    """An event of the PingSource of that name."""
    headers = {
        "ce-specversion": "1.0",
        "ce-type": "dev.knative.sources.ping",
        "ce-source": f"/apis/v1/namespaces/default/pingsources/{name}",
        "ce-id": str(uuid.uuid4()),
    }
    request = urllib.request.Request(url, data=b"{}", headers=headers, method="POST")
    urllib.request.urlopen(request, timeout=600).close()


@contextmanager
def temporary_system(data: Path, store: str | None, console: Console) -> Iterator[Running]:
    """A system without Kafka for one command, such as `stampede ingest`."""
    plan = SystemPlan(data.absolute(), store, None, (), free_port(), install=os.geteuid() == 0)
    with running_system(plan, console) as system:
        yield Running(system.settings, system.urls)
