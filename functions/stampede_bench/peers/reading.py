"""One alert's image or packet by id over HTTP, of every system that answers such a request.

Each id is asked for once, so that nothing comes out of a cache of answers. Requests are made one at
a time and several at a time, system after system, turn after turn.
"""

import http.client
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from stampede.errors import StampedeError
from stampede_bench.figures import Context, Figure, Rival, over_rounds
from stampede_bench.ingestion.ingest import paused
from stampede_bench.instruments.http_load import timed
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import Servers, pids
from stampede_bench.peers import fink, objects, own, rubin_server
from stampede_bench.peers.checkout import Checkout
from stampede_bench.peers.meter import Meter
from stampede_bench.peers.tables import OWN, by_part
from stampede_local.process import Process

AT_ONCE = (1, 8)
FEWER = 5  # of ZTF's alerts are in the smaller one of Fink's files
ARCHIVE = "peers-archive"  # the bucket of an object an alert


class Reader(NamedTuple):
    """A kind of request to a system: `ids` are what `path` takes, `rival` is another's title."""

    title: str
    process: Process
    url: str
    path: Callable[[Any], str]
    ids: Sequence[Any]
    rival: str = ""
    note: str = ""


def readings(
    context: Context,
    running: Servers,
    checkouts: Mapping[str, Checkout],
    alerts: Load,
    ztf: Load,
) -> Iterator[Figure]:
    """CPU time, bytes and requests of a request, of LSST's alerts and of ZTF's."""
    turns = context.scaled(3, 1)
    with ExitStack() as stack:
        stored = own.reader(context, running, (alerts, ztf), "peers-read")
        readers = [*of_stampede(*stack.enter_context(stored), alerts, ztf)]
        if checkout := checkouts.get("rubin-server"):
            objects.store(running, alerts, objects.USUAL, (), ARCHIVE)
            server = rubin_server.server(context, running, checkout, ARCHIVE)
            readers.append(of_rubin(checkout, *stack.enter_context(server), alerts))
        if checkout := checkouts.get("fink"):
            service = stack.enter_context(fink.server(context, running, checkout))
            for count in (len(ztf.messages) // FEWER, len(ztf.messages)):
                few = ztf._replace(messages=ztf.messages[:count], ids=ztf.ids[:count])
                readers.append(of_fink(checkout, *service, few, fink.store(running, few)))
        for reader in readers:
            asked(reader, parts_of(reader, turns)[0], 1)  # not timed
        rounds = []
        for turn in range(turns):
            context.progress(f"reading, turn {turn + 1} of {turns}")
            rounds.append([*one_turn(running, readers, turn, turns)])
    notes = {reader.title: reader.note for reader in readers}
    for figure in over_rounds(rounds):
        yield figure._replace(note=notes.pop(figure.name, ""))


def of_stampede(process: Process, url: str, alerts: Load, ztf: Load) -> Iterator[Reader]:
    """Stampede's requests: what the peers answer too."""
    lsst, zwicky = ([alert_id for alert_id, _ in each.ids] for each in (alerts, ztf))
    for what, path, ids in (
        ("an LSST cutout", own.cutout, lsst),
        ("an LSST packet", own.packet, lsst),
        ("a ZTF cutout", own.cutout, zwicky),
    ):
        yield Reader(f"{own.TITLE}: {what}", process, url, path, ids)


def of_rubin(checkout: Checkout, process: Process, url: str, alerts: Load) -> Reader:
    """What Rubin's server answers, beside the same of Stampede."""
    ids = [alert_id for alert_id, _ in alerts.ids]
    title, rival = f"{checkout.title}: an LSST packet", f"{own.TITLE}: an LSST packet"
    return Reader(title, process, url, rubin_server.path, ids, rival, rubin_server.NOTE)


def of_fink(checkout: Checkout, process: Process, url: str, ztf: Load, megabytes: float) -> Reader:
    """What Fink's service answers out of a file, beside the same of Stampede."""
    count = len(ztf.messages)
    title = f"{checkout.title}: a ZTF cutout, of {count:,} alerts in {megabytes:.0f} MB"
    rival = f"{own.TITLE}: a ZTF cutout"
    return Reader(title, process, url, partial(fink.path, count), ztf.ids, rival, fink.NOTE)


def one_turn(
    running: Servers, readers: Sequence[Reader], turn: int, turns: int
) -> Iterator[Figure]:
    """Part of the requests to each system; nothing else runs meanwhile."""
    for place, threads in enumerate(AT_ONCE):
        cpu: dict[str, dict[str, float]] = {}
        received: dict[str, float] = {}
        gets: dict[str, float] = {}
        for reader in readers:
            ids = parts_of(reader, turns)[1 + turn * len(AT_ONCE) + place]
            with paused(others(readers, reader)):
                meter = Meter(running, None, {OWN: pids([reader.process])[reader.process.name]})
                received[reader.title] = asked(reader, ids, threads) / len(ids)
                spent = meter.end()
            spent.cpu.pop("kafka", None)  # it has no part in this
            cpu[reader.title] = by_part(spent.cpu, len(ids))
            gets[reader.title] = spent.requests["GET"] / len(ids)
        yield from turn_figures(readers, threads, cpu, received, gets)


def turn_figures(
    readers: Sequence[Reader],
    threads: int,
    cpu: Mapping[str, Mapping[str, float]],
    received: Mapping[str, float],
    gets: Mapping[str, float],
) -> Iterator[Figure]:
    """The figures of a turn, of so many requests at a time."""
    how = f"read by id, {threads} at a time"
    for title, _, _, _, _, rival, _ in readers:
        beside = Rival(rival, sum(cpu[rival].values())) if rival else None
        value = sum(cpu[title].values())
        yield Figure(f"CPU of all processes, {how}", title, value, "ms/request", beside)
    for title, parts in cpu.items():
        for part, milliseconds in parts.items():
            yield Figure(f"CPU by process, {how}", f"{title}: {part}", milliseconds, "ms/request")
    for title, value in received.items():
        yield Figure(f"bytes of an answer, {how}", title, value, "bytes/request")
    for title, value in gets.items():
        yield Figure(f"GETs from S3, {how}", title, value, "/request")


def others(readers: Sequence[Reader], reader: Reader) -> list[Process]:
    """The processes of the other systems, each once."""
    found = {one.process.name: one.process for one in readers}
    return [process for process in found.values() if process is not reader.process]


def parts_of(reader: Reader, turns: int) -> list[Sequence[Any]]:
    """Its ids in equal parts: one to warm up, then one for each turn and number at a time."""
    number = 1 + turns * len(AT_ONCE)
    return [reader.ids[start::number] for start in range(number)]


def asked(reader: Reader, ids: Sequence[Any], threads: int) -> int:
    """Make a request for each id; bytes of the answers. Raises `StampedeError` on an error."""
    return ask_all(reader.title, reader.url, reader.path, ids, threads)


def ask_all(
    title: str, url: str, path_of: Callable[[Any], str], ids: Sequence[Any], threads: int
) -> int:
    """As `asked`, of something of that title."""
    sizes: list[int] = []

    def connect() -> Callable[[Any], None]:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)

        def get(one: Any) -> None:
            path = path_of(one)
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
            if response.status != 200 or not body:
                raise StampedeError(
                    f"{title}: {path} was answered {response.status}: {body[:200]!r}"
                )
            sizes.append(len(body))

        return get

    timed(connect, ids, threads)
    return sum(sizes)
