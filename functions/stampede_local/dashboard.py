"""The dashboard of `stampede up`: processes, rates, what is stored and what is missing."""

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stampede.handlers.audit.status import View
from stampede.runtime.counts import counted
from stampede.store.integrity.ledger import letters_in_words
from stampede_local.supervisor import State
from stampede_local.system import System

COLOURS: dict[str, str] = {State.RUNNING: "green", State.WAITING: "yellow", State.STOPPED: "red"}


def dashboard(view: View, system: System) -> RenderableType:
    """A view as a screen of tables."""
    flows = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("function", "alerts/s", "stored", "dead letters", "missing", "lag"):
        flows.add_column(heading, justify="left" if heading == "function" else "right")
    for flow in view.flows:
        missing = Text(f"{flow.missing:,}", style="bold red" if flow.missing else "green")
        flows.add_row(
            flow.function,
            f"{flow.per_second:,.0f}",
            f"{flow.stored:,}",
            letters_in_words(flow.dead_lettered, flow.accepted),
            missing,
            "-" if flow.lag is None else f"{flow.lag:,}",
        )
    names = [
        Text.assemble(("● ", COLOURS.get(state, "yellow")), name)
        for name, state in view.states.items()
    ]
    processes = Table.grid(padding=(0, 3, 0, 0))
    processes.add_row(Text("processes", style="dim"), Columns(names, padding=(0, 2)))
    addresses = Table(box=None, show_header=False, padding=(0, 3, 0, 0))
    for name, value in addresses_of(system):
        addresses.add_row(Text(name, style="dim"), Text(value))
    runs = ", ".join(f"{name} {count:,}" for name, count in view.runs.items())
    last = Text(f"runs: {runs}    Ctrl-C stops", style="dim")
    damage = [Text(f"in quarantine: {key}", style="bold red") for key in view.quarantined]
    faults = [
        Text(f"{name} is {state}; its log: {system.processes[name].log}", style="bold yellow")
        for name, state in view.states.items()
        if state != State.RUNNING
    ]
    return Group(addresses, "", flows, "", processes, "", *faults, *damage, last)


def addresses_of(system: System) -> list[tuple[str, str]]:
    """The addresses that a user needs."""
    addresses = [
        ("open", f"{system.urls['read']}/"),
        ("store", system.settings.store),
        ("logs", str(system.plan.data / "logs")),
    ]
    if system.settings.kafka:
        topics = system.settings.topics.replace(",", ", ")
        addresses[1:1] = [
            ("kafka", f"{system.settings.kafka}  topics {topics}"),
            ("send", f"stampede simulate --to kafka://{system.settings.kafka}"),
        ]
    return addresses


def line(view: View) -> str:
    """A view as one line, for a log without a terminal."""
    parts = [
        f"{flow.function}: {flow.per_second:,.0f}/s, {flow.stored:,} stored, "
        f"{counted(flow.dead_lettered, 'dead letter')}{accepted}, {flow.missing:,} missing"
        + ("" if flow.lag is None else f", lag {flow.lag:,}")
        for flow in view.flows
        for accepted in [f" ({flow.accepted:,} accepted)" if flow.accepted else ""]
    ]
    states = view.states.items()
    parts += [f"{name} is {state}" for name, state in states if state != State.RUNNING]
    if view.quarantined:
        parts.append(f"in quarantine: {', '.join(view.quarantined)}")
    return "; ".join(parts)
