"""Other systems beside Stampede: on the same Ceph and Kafka, with the same alerts, in turn.

CPU time counts, of every process on an alert's way, the servers' too: wall time of a shared machine
says little. What the servers spend when idle is measured alone, and taken off in a table of its
own, because a system that takes longer is charged more of it.
"""

from collections.abc import Iterator, Mapping

from stampede_bench.figures import Context, Figure, over_rounds
from stampede_bench.ingestion.ingest import HISTORY
from stampede_bench.instruments import load
from stampede_bench.instruments.servers import servers
from stampede_bench.peers.checkout import PEERS, VERSION, Checkout, open_checkout
from stampede_bench.peers.meter import Spent, idle
from stampede_bench.peers.packets import packet_figures
from stampede_bench.peers.reading import readings
from stampede_bench.peers.storing import systems
from stampede_bench.peers.tables import storing_figures
from stampede_bench.peers.versions import comparison

WARM = 100  # alerts that are stored first
ZTF_ALERTS = 1500  # about 100 MB, as one of Fink's blocks


def measure(context: Context) -> Iterator[Figure]:
    """Storing, then reading. If the only peer is an earlier Stampede, it alone is measured.

    Raises `SetupError` if a checkout cannot be used.
    """
    checkouts = {name: open_checkout(name, path) for name, path in context.peers}
    if earlier := checkouts.pop(VERSION, None):
        yield from comparison.measure(context, earlier)
        if not checkouts:
            return
    left_out = told(checkouts)
    if left_out:
        context.progress(left_out)
    count = context.scaled(1000, 100, least=20)
    context.progress(f"simulating {count:,} LSST alerts")
    every = load.simulated("lsst", count + WARM, HISTORY["lsst"])
    warm = every.messages[:WARM]
    alerts = every._replace(messages=every.messages[WARM:], ids=every.ids[WARM:])
    few = context.scaled(ZTF_ALERTS, 250, least=40)
    ztf = load.simulated("ztf", few, HISTORY["ztf"])
    with servers(context, kafka=True) as running:
        resting = idle(running.pids, context.scaled(20, 5))
        compared = [*systems(context, running, checkouts, alerts, warm)]
        rounds = []
        for number in range(context.scaled(3, 1)):
            spent: dict[str, Spent] = {}
            for place, system in enumerate(compared):
                found = spent[system.title] = system.store(f"peers-{number}-{place}")
                cpu = 1e3 * sum(found.cpu.values()) / count
                context.progress(f"round {number + 1}: {system.title}: {cpu:.2f} ms an alert")
            rounds.append(
                [
                    *storing_figures(
                        alerts.title, alerts.messages, spent, dict.fromkeys(spent, resting)
                    )
                ]
            )
        notes = {system.title: system.note for system in compared}
        yield from noted(over_rounds(rounds), notes, left_out)
        yield from readings(context, running, checkouts, alerts, ztf)
    yield from packet_figures(alerts)


def told(checkouts: Mapping[str, Checkout]) -> str:
    """Which peers are left out; empty if none is."""
    missing = [name for name in PEERS if name not in (VERSION, *checkouts)]
    return f"Left out, as no --peer gives a checkout: {', '.join(missing)}." if missing else ""


def noted(figures: Iterator[Figure], notes: Mapping[str, str], left_out: str) -> Iterator[Figure]:
    """The figures, of which each system's first has its note."""
    rest = dict(notes)
    for number, figure in enumerate(figures):
        note = rest.pop(figure.name, "")
        if number == 0 and left_out:
            note = f"{note} {left_out}".strip()
        yield figure._replace(note=note) if note else figure
