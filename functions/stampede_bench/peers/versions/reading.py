"""What a request costs each version: CPU time of `read` and of Ceph."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from stampede.errors import StampedeError
from stampede_bench.figures import Figure, Rival
from stampede_bench.instruments.servers import Servers
from stampede_bench.peers import own
from stampede_bench.peers.meter import Meter
from stampede_bench.peers.reading import AT_ONCE, ask_all
from stampede_bench.peers.versions.alerts import Sent
from stampede_bench.peers.versions.live import Live
from stampede_local.demo.oracle import read_record

SEEN_SECONDS = 60.0
LOOK_SECONDS = 1.0
RADIUS = 5  # arcsec, of a cone
CEPH = ("radosgw", "ceph-osd", "ceph-mon")


class Item(NamedTuple):
    """What is asked for: an alert, its object, and its place."""

    alert_id: int
    object_id: str
    ra: float
    dec: float


def alert(item: Item) -> str:
    """Path of an alert, as JSON."""
    return f"/v1/alerts/{item.alert_id}"


def light_curve(item: Item) -> str:
    """Path of a light curve, as JSON."""
    return f"/v1/objects/{quote(item.object_id, safe='')}/lightcurve"


def page(item: Item) -> str:
    """Path of an object's page."""
    return f"/objects/{quote(item.object_id, safe='')}"


def cone(item: Item) -> str:
    """Path of a search around it."""
    return f"/v1/cone?ra={item.ra}&dec={item.dec}&radius={RADIUS}"


OF_AN_ALERT: Mapping[str, Callable[[Item], str]] = {
    "a cutout as FITS": lambda item: own.cutout(item.alert_id),
    "a packet": lambda item: own.packet(item.alert_id),
    "an alert as JSON": alert,
}
OF_AN_OBJECT: Mapping[str, Callable[[Item], str]] = {
    "a light curve as JSON": light_curve,
    "an object's page": page,
    "a cone": cone,
}


class Cell(NamedTuple):
    """Requests of one kind in one turn, so many at a time; each item is asked for in one cell."""

    what: str
    path: Callable[[Item], str]
    threads: int
    turn: int
    items: Sequence[Item]


def cells(every: Sequence[Item], turns: int, most: int) -> Iterator[Cell]:
    """All of them, with `most` items at most. Those of turn -1, one at a time, are to warm up."""
    objects = [*{item.object_id: item for item in every}.values()]
    for kinds, asked in ((OF_AN_ALERT, every), (OF_AN_OBJECT, objects)):
        places = [
            (what, threads, turn)
            for turn in range(-1, turns)
            for threads in (AT_ONCE if turn >= 0 else AT_ONCE[:1])
            for what in kinds
        ]
        for number, (what, threads, turn) in enumerate(places):
            part = asked[number :: len(places)][:most]
            yield Cell(what, kinds[what], threads, turn, part)


def items(sent: Sent) -> list[Item]:
    """The alerts, with their places."""
    found = []
    for message, (alert_id, object_id) in zip(sent.whole.messages, sent.whole.ids, strict=True):
        survey, record = read_record(message)
        place = record["diaSource" if survey == "lsst" else "candidate"]
        found.append(Item(alert_id, object_id, place["ra"], place["dec"]))
    return found


def warm_up(live: Live, first: Sequence[Cell]) -> None:
    """Ask for some of everything, as soon as `read` has seen what was stored last."""
    deadline = time.monotonic() + SEEN_SECONDS
    with live.awake("read"):
        for cell in first:
            while True:
                try:
                    ask(live, cell)
                    break
                except StampedeError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(LOOK_SECONDS)


def one_turn(
    running: Servers, versions: Sequence[Live], alerts: str, asked: Sequence[Cell]
) -> Iterator[Figure]:
    """The same requests to each version, the earlier one first."""
    earlier, this = versions
    for cell in asked:
        spent = [spent_on_reading(running, live, cell) for live in versions]
        how = f"{alerts}, {cell.threads} at a time"
        name = f"{this.version.title}: {cell.what}"
        for subject, unit, before, now in (
            (f"CPU of read and Ceph, {how}", "ms/request", spent[0].cpu, spent[1].cpu),
            (f"GETs from S3, {how}", "/request", spent[0].gets, spent[1].gets),
        ):
            rival = Rival(earlier.version.title, before) if before else None
            yield Figure(subject, name, now, unit, rival)


class SpentOnReading(NamedTuple):
    """Of a request: milliseconds of CPU time of `read` and Ceph, and GETs from S3."""

    cpu: float
    gets: float


def spent_on_reading(running: Servers, live: Live, cell: Cell) -> SpentOnReading:
    """What a request costs."""
    with live.awake("read"):
        meter = Meter(running, None, {"read": live.pids["read"]})
        ask(live, cell)
        spent = meter.end()
    cpu = sum(spent.cpu[name] for name in ("read", *ceph(running)))
    return SpentOnReading(1e3 * cpu / len(cell.items), spent.requests["GET"] / len(cell.items))


def ask(live: Live, cell: Cell) -> None:
    """Make the requests. Raises `StampedeError` if one is not answered."""
    title = f"{live.version.title}: {cell.what}"
    ask_all(title, live.urls["read"], cell.path, cell.items, cell.threads)


def ceph(running: Servers) -> dict[str, int]:
    """Process ids of Ceph."""
    return {name: pid for name, pid in running.pids.items() if name.startswith(CEPH)}
