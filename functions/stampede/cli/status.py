"""`stampede status`: what runs, how fast, what is stored and what is missing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stampede.cli.options import Data, results_console

if TYPE_CHECKING:
    from rich.console import RenderableType

    from stampede.handlers.audit.status import View

FIRST_SECONDS, SECONDS = 1.0, 2.0  # over which rates are measured


def status(
    as_json: Annotated[
        bool, typer.Option("--json", help="a JSON document; with --watch, one in each line")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="again every two seconds, until Ctrl-C")
    ] = False,
    data: Data = None,
) -> None:
    """Show what runs, how fast alerts are stored, and what is stored and missing.

    Of the `stampede up` that is running, or of the functions of STAMPEDE_FUNCTIONS and the store of
    STAMPEDE_STORE. The exit status is 1 if a process is not ready, alerts are missing, or an object
    is in quarantine. `stampede audit` compares with all that Kafka has.
    """
    from stampede.cli.running import running, settings_of
    from stampede.handlers.audit.status import Status, states_of
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()
    system = running(data)
    urls = system.urls if system else {}
    read = Status(settings_of(system), urls, lambda: states_of(urls)).read
    show = _print_json if as_json else _print_tables
    well = False
    try:
        for view in _views(read, watch):
            show(view, watch)
            well = is_well(view)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0 if well else 1)


def _views(read: Callable[[], View], watch: bool) -> Iterator[View]:
    """A view, or one every few seconds."""
    read()  # rates are those since the reading before
    time.sleep(FIRST_SECONDS)
    yield read()
    while watch:
        time.sleep(SECONDS)
        yield read()


def is_well(view: View) -> bool:
    """Whether everything runs, nothing is missing, and nothing is in quarantine."""
    return (
        all(state == "running" for state in view.states.values())
        and not any(flow.missing for flow in view.flows)
        and not view.quarantined
    )


def as_dict(view: View) -> dict[str, Any]:
    """A view as the JSON document: counts are of alerts, `per_second` is their rate."""
    return {
        "well": is_well(view),
        "processes": dict(view.states),
        "functions": [flow._asdict() for flow in view.flows],
        "runs": view.runs,
        "quarantined": view.quarantined,
    }


def _print_json(view: View, watch: bool) -> None:
    print(json.dumps(as_dict(view), indent=None if watch else 2), flush=True)


def _print_tables(view: View, watch: bool) -> None:
    console = results_console()
    if watch:
        console.clear()
    for part in _parts(view):
        console.print(part, highlight=False, soft_wrap=True)


def _parts(view: View) -> Iterator[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    from stampede.store.integrity.ledger import letters_in_words

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("function", "alerts/s", "stored", "dead letters", "missing", "lag"):
        table.add_column(heading, justify="left" if heading == "function" else "right")
    for flow in view.flows:
        table.add_row(
            flow.function,
            f"{flow.per_second:,.0f}",
            f"{flow.stored:,}",
            letters_in_words(flow.dead_lettered, flow.accepted),
            f"{flow.missing:,}",
            "-" if flow.lag is None else f"{flow.lag:,}",
            style="bold red" if flow.missing else "",
        )
    yield table
    yield "runs: " + ", ".join(f"{name} {count:,}" for name, count in view.runs.items())
    for name, state in view.states.items():
        if state != "running":
            yield Text(f"{name} is {state}", style="bold red")
    for key in view.quarantined:
        yield Text(f"in quarantine: {key}", style="bold red")
    count = sum(state == "running" for state in view.states.values())
    yield f"{count:,} of {len(view.states):,} processes are running"
