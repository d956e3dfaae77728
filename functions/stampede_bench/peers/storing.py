"""The systems that store alerts, each with what a reader must know of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from stampede_bench.figures import Context
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import Servers
from stampede_bench.peers import objects, own, rubin_ingester
from stampede_bench.peers.checkout import Checkout
from stampede_bench.peers.meter import Spent


class Storing(NamedTuple):
    """A system: its title and note, and what stores the alerts in a new bucket of a name."""

    title: str
    note: str
    store: Callable[[str], Spent]


def systems(
    context: Context,
    running: Servers,
    checkouts: Mapping[str, Checkout],
    alerts: Load,
    warm: Sequence[bytes],
) -> Iterator[Storing]:
    """Stampede, the peers with a checkout, one object an alert."""
    yield Storing(own.TITLE, own.NOTE, partial(own.store, context, running, alerts, warm))
    if checkout := checkouts.get("rubin-ingester"):
        store = partial(rubin_ingester.store, context, running, checkout, alerts, warm)
        yield Storing(checkout.title, rubin_ingester.NOTE, store)
    bodies = objects.compressed(alerts)
    before = partial(objects.store, running, alerts, objects.USUAL, bodies)
    yield Storing(objects.BEFORE, objects.NOTE, before)
    for title, level in objects.LEVELS.items():
        yield Storing(title, "", partial(objects.store, running, alerts, level, ()))
