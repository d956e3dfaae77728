"""What passes cost each version: thumbnails that are drawn, compaction, scrub."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stampede.errors import StampedeError
from stampede.store.integrity import scrub_state
from stampede_bench.figures import Context, Figure, Rival
from stampede_bench.ingestion.cost import totals
from stampede_bench.instruments.cpu import Cpu
from stampede_bench.instruments.servers import Servers
from stampede_bench.peers.versions.live import THUMBNAILS, Live
from stampede_bench.peers.versions.reading import ceph

SCRUBBED = "stampede_scrubbed_bytes_total"
ROUNDS = 2  # of scrub that are measured, after one that is not
MOST_PASSES = 100  # of a round
# Nobody tells the functions that there are new packs, as Ceph does elsewhere: it is looked for.
_NOW = {"STAMPEDE_RECONCILE": "thumbnails", "STAMPEDE_GRACE_SECONDS": "0"}


class Held(NamedTuple):
    """What a bucket holds: bytes, objects."""

    bytes: int
    objects: int


def held(live: Live) -> Held:
    """What is in its bucket, with what a merge has replaced and will delete."""
    sizes = [info.size for info in live.bucket.list("")]
    return Held(sum(sizes), len(sizes))


def draw(context: Context, running: Servers, live: Live, count: int) -> dict[str, float]:
    """Let it draw the thumbnails of so many alerts; CPU seconds by process."""
    with live.awake():
        cpu = Cpu(live.pids | running.pids)
        live.run("reconcile", "--all", **_NOW)
        live.wait(count, (THUMBNAILS,))
        spent = cpu.seconds()
    context.progress(f"{live.version.title}: thumbnails drawn, {sum(spent.values()):.1f} CPU s")
    return spent


def compact(context: Context, running: Servers, live: Live) -> dict[str, float]:
    """Let it make one pass of compaction; CPU seconds by process."""
    with live.awake("compact"):
        cpu = Cpu({"compact": live.pids["compact"]} | ceph(running))
        live.tell("compact")
        spent = cpu.seconds()
    context.progress(f"{live.version.title}: compacted, {sum(spent.values()):.1f} CPU s")
    return spent


def scrub(context: Context, running: Servers, versions: Sequence[Live]) -> Iterator[Figure]:
    """CPU time of a GB, of whole rounds in turn."""
    for live in versions:
        one_round(live, MOST_PASSES)
    spent: dict[str, dict[str, float]] = {live.version.title: {} for live in versions}
    read = dict.fromkeys(spent, 0)
    for _ in range(context.scaled(ROUNDS, 1)):
        for live in versions:
            title = live.version.title
            cpu = Cpu({"scrub": live.pids["scrub"]} | ceph(running))
            read[title] += one_round(live, MOST_PASSES)
            for name, seconds in cpu.seconds().items():
                part = "scrub" if name.startswith("scrub") else "Ceph"
                spent[title][part] = spent[title].get(part, 0.0) + seconds
    yield from scrub_figures(spent, read)


def scrub_figures(
    spent: Mapping[str, Mapping[str, float]], read: Mapping[str, int]
) -> Iterator[Figure]:
    """The table of scrub, given CPU seconds by part and bytes read, the earlier version first."""
    earlier, this = spent
    for part in ("all", "scrub", "Ceph"):
        before, now = (
            1e9 * (sum(each.values()) if part == "all" else each.get(part, 0.0)) / read[title]
            for title, each in spent.items()
        )
        rival = Rival(earlier, before)
        yield Figure("scrub, for a GB stored", f"{this}: CPU of {part}", now, "CPU s/GB", rival)
    rival = Rival(earlier, read[earlier] / 1e9)
    yield Figure("scrub, for a GB stored", f"{this}: read", read[this] / 1e9, "GB", rival)


def one_round(live: Live, most: int) -> int:
    """Scrub everything once, from the beginning: bytes read.

    A pass reads for some seconds. One that reads nothing says that the round has ended. Raises
    `StampedeError` if none of the first `most` does, or if nothing is read at all.
    """
    for info in [*live.bucket.list(scrub_state.PREFIX)]:
        live.bucket.delete(info.key)
    url = live.urls["scrub"]
    with live.awake("scrub"):
        first = last = totals(url, SCRUBBED)[SCRUBBED]
        for _ in range(most):
            live.tell("scrub")
            now = totals(url, SCRUBBED)[SCRUBBED]
            if now == last:
                break
            last = now
        else:
            raise StampedeError(f"{live.version.title}: scrub ends no round")
    if last == first:
        raise StampedeError(f"{live.version.title}: scrub reads nothing")
    return last - first
