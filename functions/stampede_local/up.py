"""`stampede up`: everything on this machine, with a dashboard, until Ctrl-C."""

import os
import queue
import signal
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from stampede.cli.running import Running
from stampede.errors import StampedeError
from stampede.events.auth.access import key_header
from stampede.handlers.audit.status import Status, View, states_of
from stampede.runtime.progress import Progress, silent
from stampede_local.dashboard import dashboard, line
from stampede_local.plan import SystemPlan
from stampede_local.ports import free_port
from stampede_local.process import Process
from stampede_local.supervisor import State
from stampede_local.system import System

LOOK_SECONDS = 2.0
LINE_SECONDS = 10.0
WAIT_SECONDS = 0.2  # for a view, before looking whether to stop
STOPPING = "still stopping: it takes seconds, and the last word is `stopped`"
PING_SECONDS = {
    "compact": 20.0,
    "reconcile": 60.0,
    "scrub": 60.0,
}  # between events to each function


def up(plan: SystemPlan, console: Console) -> None:
    """Start everything and show it until SIGTERM or Ctrl-C.

    Raises `KeyboardInterrupt` if one of them comes before the system is ready.
    """
    with stopping() as stop, running_system(plan, console, stop) as system:
        show(system, console, stop)


@contextmanager
def running_system(
    plan: SystemPlan, console: Console, stop: "Stop | None" = None
) -> Iterator[System]:
    """The system with its timers. Its progress goes to the console."""
    begin = time.monotonic()

    def progress(text: str) -> None:
        when = Text(f"{time.monotonic() - begin:6.1f} s", style="dim")
        console.print(when, Text(text), sep="  ", soft_wrap=not console.is_terminal)

    def report(process: Process, state: State) -> None:
        if state is State.WAITING:
            progress(f"{process.name} ended with status {process.status}: starting it again")
            progress(f"  its log: {process.log}")

    with System(plan, progress, report) as system, timer(system):
        if stop:
            stop.starting, stop.tell = False, progress
        progress(f"ready: {system.urls['read']}/")
        yield system


def show(system: System, console: Console, stop: threading.Event) -> None:
    """Show the dashboard until `stop` is set; without a terminal a line whenever it changes."""
    if not console.is_terminal:
        printed = None
        for view in watch(system, console, LINE_SECONDS, stop):
            if (text := line(view)) != printed:
                console.print(text, highlight=False, soft_wrap=True)
            printed = text
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for view in watch(system, console, LOOK_SECONDS, stop):
            live.update(dashboard(view, system), refresh=True)


def watch(
    system: System, console: Console, seconds: float, stop: threading.Event
) -> Iterator[View]:
    """A view of the system every few seconds, until `stop` is set.

    A thread of its own reads the status: if the store is away, reading takes long, and `stop`
    should not wait for that. An error is a line on the console and does not end the watch.
    """
    # SimpleQueue.get of Python 3.11 waits for ever if a signal is handled as its timeout passes.
    views: queue.Queue[View] = queue.Queue()

    def read() -> None:
        status = Status(system.settings, system.urls, partial(states_of_up, system))
        while not stop.is_set():
            try:
                views.put(status.read())
            except Exception as error:
                if not stop.is_set():
                    why = error.message if isinstance(error, StampedeError) else repr(error)
                    console.print(why, style="yellow", markup=False, highlight=False)
            stop.wait(seconds)

    threading.Thread(target=read, name="watch", daemon=True).start()
    while not stop.is_set():
        with suppress(queue.Empty):
            yield views.get(timeout=WAIT_SECONDS)


def states_of_up(system: System) -> dict[str, str]:
    """The state of each process: the supervisor's, or "not ready" if it runs and does not answer.

    A server that stands still, Kafka for example, shows in the function that waits for it.
    """
    states: dict[str, str] = dict(system.supervisor.states())
    running = {name: url for name, url in system.urls.items() if states.get(name) == State.RUNNING}
    return states | states_of(running)


class Stop(threading.Event):
    """What SIGTERM and Ctrl-C set. While the system starts, they raise KeyboardInterrupt too."""

    starting = True
    tell: Progress = staticmethod(silent)
    """Called with a line if one of them comes again."""

    def signalled(self, *_: object) -> None:
        """Handle a signal: an installation or a start ends at once, all else by `wait`."""
        if self.is_set() and not self.starting:
            # In a thread: the signal may have come while this one was printing.
            threading.Thread(target=self.tell, args=[STOPPING], daemon=True).start()
        self.set()
        if self.starting:
            raise KeyboardInterrupt


@contextmanager
def stopping() -> Iterator[Stop]:
    """A `Stop`, in force for SIGTERM and Ctrl-C until the block ends."""
    stop = Stop()
    before = {
        number: signal.signal(number, stop.signalled) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def timer(system: System) -> Iterator[None]:
    """Send the functions that make passes an event at intervals, like PingSources on a cluster."""
    stop = threading.Event()

    def ping(name: str, seconds: float) -> None:
        while not stop.wait(seconds):
            # The function may be restarting; it gets another event later.
            with suppress(OSError, HTTPException):
                send(name, system.urls[name], key_header(system.settings))

    for name, seconds in PING_SECONDS.items():
        thread_name = f"timer of {name}"
        threading.Thread(target=ping, args=(name, seconds), name=thread_name, daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def send(name: str, url: str, key: Mapping[str, str]) -> None:
    """Send the event of the PingSource of that name, with the header of the key."""
    headers = {
        **key,
        "ce-specversion": "1.0",
        "ce-type": "dev.knative.sources.ping",
        "ce-source": f"/apis/v1/namespaces/default/pingsources/{name}",
        "ce-id": str(uuid.uuid4()),
    }
    request = urllib.request.Request(url, data=b"{}", headers=headers, method="POST")
    urllib.request.urlopen(request, timeout=600).close()


@contextmanager
def temporary_system(data: Path, store: str | None, console: Console) -> Iterator[Running]:
    """A system without Kafka for one command, for example `stampede ingest`."""
    plan = SystemPlan(data.absolute(), store, None, (), free_port(), install=os.geteuid() == 0)
    with running_system(plan, console) as system:
        yield Running(system.settings, system.urls)
