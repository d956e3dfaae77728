"""This version beside an earlier one: the same servers, the same alerts, in turn.

CPU time counts, of every process on an alert's way, the servers' too. The alerts are those of the
earlier version's simulator. Each version runs its own `stampede up`; while one is measured, the
processes of the other are stopped.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from stampede_bench.figures import Context, Figure, Rival, by_subject, over_rounds
from stampede_bench.ingestion.ingest import fill
from stampede_bench.instruments.servers import Servers, servers
from stampede_bench.peers.checkout import Checkout
from stampede_bench.peers.meter import Meter, Spent, idle
from stampede_bench.peers.tables import SERVERS, storing_figures
from stampede_bench.peers.versions import passes
from stampede_bench.peers.versions.alerts import Sent, Wanted, simulated
from stampede_bench.peers.versions.live import Live, started, this_version, version_of
from stampede_bench.peers.versions.passes import Held, held
from stampede_bench.peers.versions.reading import cells, items, one_turn, warm_up

WAYS = (  # name, what `stampede up` starts, whether it starts sources
    ("versions-sources", "with sources", True),
    ("versions", "without sources", False),
)
SURVEYS = ("lsst", "ztf")
LEAST = 0.05  # ms an alert of a process that is shown
ASKED = 60  # requests of a kind in a turn at most, so many at a time


def measure(context: Context, checkout: Checkout) -> Iterator[Figure]:
    """Storing in both ways, then with what the first way has stored: passes, reading, scrub."""
    versions = (version_of(checkout), this_version())
    rounds = context.scaled(3, 1)
    warm = context.scaled(100, 50, least=20)
    wanted = [
        Wanted("lsst", warm, context.scaled(1200, 150, least=20), rounds),
        Wanted("ztf", warm, context.scaled(2400, 300, least=20), rounds),
    ]
    total = sum(each.total for each in wanted)
    context.progress(f"{checkout.title} simulates {total:,} alerts")
    sent = [*simulated(checkout, context.scratch, wanted)]
    with servers(context, kafka=True) as running:
        for name, way, sources in WAYS:
            with started(context, running, versions, name, SURVEYS, sources) as live:
                yield from storing(context, running, live, sent, way)
                if not sources:
                    yield from passes_and_reads(context, running, live, sent)


def storing(
    context: Context,
    running: Servers,
    versions: Sequence[Live],
    sent: Sequence[Sent],
    way: str,
) -> Iterator[Figure]:
    """What each version spends on an alert of each survey."""
    resting: dict[str, dict[str, float]] = {}
    for live in versions:
        for one in sent:
            fill(live.settings, live.topic(one.survey), one.warm)
        with live.awake():
            live.wait(sum(len(one.warm) for one in sent))
            resting[live.version.title] = idle(live.pids | running.pids, context.scaled(15, 5))
    rounds = []
    for number in range(len(sent[0].rounds)):
        figures: list[Figure] = []
        for one in sent:
            messages = one.rounds[number]
            spent = {
                live.version.title: store(running, live, one, number, sent) for live in versions
            }
            for title, found in spent.items():
                cpu = 1e3 * sum(found.cpu.values()) / len(messages)
                context.progress(f"{one.survey}, {way}, {title}: {cpu:.2f} ms an alert")
            title = f"{one.whole.title}, {way}"
            figures += storing_figures(title, messages, spent, resting, "all processes")
            figures += own_figures(title, spent, len(messages))
        rounds.append(figures)
    for live in versions:
        with live.awake():
            live.run("audit")  # fails if an alert is missing
    yield from by_subject(over_rounds(rounds, by_ratio=True))


def own_figures(alerts: str, spent: Mapping[str, Spent], count: int) -> Iterator[Figure]:
    """CPU time of each version's own processes, and of their workers; those that did something."""
    for title, one in spent.items():
        for name, seconds in one.cpu.items():
            if name not in SERVERS and 1e3 * seconds / count >= LEAST:
                value = 1e3 * seconds / count
                yield Figure(
                    f"CPU by function, stored: {alerts}", f"{title}: {name}", value, "ms/alert"
                )


def store(running: Servers, live: Live, one: Sent, number: int, sent: Sequence[Sent]) -> Spent:
    """Let a version store a survey's alerts of a round."""
    before = sum(len(each.warm) + sum(map(len, each.rounds[:number])) for each in sent)
    for each in sent[: sent.index(one) + 1]:
        before += len(each.rounds[number])
    fill(live.settings, live.topic(one.survey), one.rounds[number])
    meter = Meter(running, live.bucket, live.pids)
    with live.awake():
        live.wait(before)
        return meter.end()


def passes_and_reads(
    context: Context, running: Servers, versions: Sequence[Live], sent: Sequence[Sent]
) -> Iterator[Figure]:
    """What follows when the alerts are stored: thumbnails, compaction, reading, scrub."""
    count = sum(len(one.whole.messages) for one in sent)
    titles = [live.version.title for live in versions]
    sizes = {"as they came": [held(live) for live in versions]}
    drawn = [passes.draw(context, running, live, count) for live in versions]
    sizes["with thumbnails"] = [held(live) for live in versions]
    merged = [passes.compact(context, running, live) for live in versions]
    sizes["compacted, with what that replaced"] = [held(live) for live in versions]
    yield from spent_on("CPU of drawing thumbnails", titles, drawn, count)
    yield from spent_on("CPU of one pass of compaction", titles, merged, count)
    yield from size_figures(titles, sizes, count)
    for one in sent:
        yield from reading(context, running, versions, one)
    context.progress("scrub")
    yield from passes.scrub(context, running, versions)


def reading(
    context: Context, running: Servers, versions: Sequence[Live], sent: Sent
) -> Iterator[Figure]:
    """What each kind of request costs, of a survey's alerts."""
    turns = context.scaled(3, 1)
    by_turn = defaultdict(list)
    for cell in cells(items(sent), turns, ASKED):
        by_turn[cell.turn].append(cell)
    for live in versions:
        warm_up(live, by_turn[-1])
    rounds = []
    for turn in range(turns):
        context.progress(f"reading {sent.survey}, turn {turn + 1} of {turns}")
        rounds.append([*one_turn(running, versions, sent.whole.title, by_turn[turn])])
    yield from by_subject(over_rounds(rounds, by_ratio=True))


def spent_on(
    subject: str, titles: Sequence[str], spent: Sequence[Mapping[str, float]], count: int
) -> Iterator[Figure]:
    """CPU time an alert of both versions."""
    before, now = (1e3 * sum(each.values()) / count for each in spent)
    yield Figure(f"{subject}, both surveys", titles[1], now, "ms/alert", Rival(titles[0], before))


def size_figures(
    titles: Sequence[str], sizes: Mapping[str, Sequence[Held]], count: int
) -> Iterator[Figure]:
    """Bytes and objects an alert of both versions, at some points."""
    earlier, this = titles
    for when, (before, now) in sizes.items():
        rival = Rival(earlier, before.bytes / count)
        yield Figure(
            "bytes held, both surveys", f"{this}: {when}", now.bytes / count, "bytes/alert", rival
        )
    for when, (before, now) in sizes.items():
        rival = Rival(earlier, 1e3 * before.objects / count)
        per_1000 = 1e3 * now.objects / count
        yield Figure(
            "objects held, both surveys", f"{this}: {when}", per_1000, "/1,000 alerts", rival
        )
