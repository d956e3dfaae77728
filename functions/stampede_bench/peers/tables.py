"""The tables of systems beside each other: one of each quantity. The first system is the rival."""

from collections.abc import Iterator, Mapping, Sequence

from stampede_bench.figures import Figure, Rival
from stampede_bench.peers.meter import Spent

REQUESTS = ("PUT", "GET", "HEAD", "LIST")
SERVERS = ("radosgw", "ceph-osd", "ceph-mon", "kafka")
OWN = "its own processes"


def storing_figures(
    sent: str,
    messages: Sequence[bytes],
    spent: Mapping[str, Spent],
    idle: Mapping[str, Mapping[str, float]],
    idlers: str = "the servers",
) -> Iterator[Figure]:
    """What each system, by its title, spent on an alert.

    Parameters
    ----------
    sent
        What was sent, in a line.
    idle
        Of each system, cores that processes use when nothing is asked of them: those of `idlers`.
    """
    count, what = len(messages), f"stored: {sent}"
    whole = {title: by_part(one.cpu, count) for title, one in spent.items()}
    busy = {title: by_part(without_idle(one, idle[title]), count) for title, one in spent.items()}
    yield from in_all(f"CPU of all processes, {what}", whole)
    yield from in_all(f"CPU without what {idlers} take when idle, {what}", busy)
    for title, parts in whole.items():
        for part, milliseconds in parts.items():
            yield Figure(f"CPU by process, {what}", f"{title}: {part}", milliseconds, "ms/alert")
    size = Rival("as sent", sum(map(len, messages)) / count)
    for title, one in spent.items():
        yield Figure(f"bytes, {what}", title, one.stored / count, "bytes/alert", size)
    for title, one in spent.items():
        for kind in REQUESTS:
            if number := one.requests[kind]:
                per_1000 = 1e3 * number / count
                yield Figure(f"requests, {what}", f"{title}: {kind}", per_1000, "/1,000 alerts")


def in_all(subject: str, parts: Mapping[str, Mapping[str, float]]) -> Iterator[Figure]:
    """The sum of each system's parts, beside that of the first."""
    first, *_ = parts
    for title, each in parts.items():
        rival = None if title == first else Rival(first, sum(parts[first].values()))
        yield Figure(subject, title, sum(each.values()), "ms/alert", rival)


def by_part(cpu: Mapping[str, float], count: int) -> dict[str, float]:
    """Milliseconds each of so many alerts or requests: of a system's own processes, of servers."""
    own = sum(seconds for name, seconds in cpu.items() if name not in SERVERS)
    servers = {name: seconds for name, seconds in cpu.items() if name in SERVERS}
    return {name: 1e3 * seconds / count for name, seconds in {OWN: own, **servers}.items()}


def without_idle(spent: Spent, idle: Mapping[str, float]) -> dict[str, float]:
    """CPU seconds by process, less those that it would have used without the system."""
    return {
        name: max(0.0, seconds - idle.get(name, 0.0) * spent.wall)
        for name, seconds in spent.cpu.items()
    }
