"""Route of the page of the ledger: what is stored and missing, dead letters, and the upkeep."""

from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from stampede.lookup.ledger_cache import LedgerPage
from stampede.lookup.response_warnings import counted
from stampede.read.pages import page as pages
from stampede.read.pages.verdict import verdict
from stampede.read.plots import ledger_bars
from stampede.read.plots.ledger_bars import bar_svg
from stampede.read.service import service_of
from stampede.read.summaries.maintenance_state import LETTERS
from stampede.read.web import parameters
from stampede.store.integrity.ledger import Entry
from stampede.store.offsets.coverage import Interval, topic_key

MOST_BARS = 100
"""Partitions on the page, those that lack most first; totals are of all."""
MOST_GAPS = 5
"""Missing intervals that are written out for a partition."""
MOST_DAMAGED = 20
PAST_TOPICS, MOST_PAGES = 50, 10_000
"""Lines of past topics on a page, and most pages."""


class Totals(NamedTuple):
    """The ledger of one table and topic, all partitions together.

    `in_flight` is None if Kafka was not asked.
    """

    topic: str
    topic_id: str | None
    table: str
    partitions: int
    received: int
    stored: int
    dead_lettered: int
    missing: int
    in_flight: int | None


class PastTopic(NamedTuple):
    """A topic of a family that is complete in all tables, and that Kafka is not asked for any more.

    `deleted` counts alerts that were deleted with the topic before a table had them.
    """

    topic: str
    topic_id: str | None
    partitions: int
    received: int
    dead_lettered: int
    deleted: int


class Bar(NamedTuple):
    """One partition in one table: its entry, its bar as SVG, its counts and first gaps in words."""

    entry: Entry
    svg: str
    counts: str
    gaps: str


async def ledger_page(request: Request) -> Response:
    """`/ledger`: the completeness ledger, for people."""
    service = service_of(request)
    page = await service.run_ledger(service.ledger.page)
    upkeep = await service.run_upkeep(service.upkeep.upkeep)
    keys = past_keys(page)
    past = past_topics(page, keys)
    number = parameters.whole_number(request.query_params, "page", 1, MOST_PAGES) or 1
    last = max(1, -(-len(past) // PAST_TOPICS))
    number = min(number, last)
    shown = past[(number - 1) * PAST_TOPICS : number * PAST_TOPICS]
    worst = sorted(page.entries, key=lambda entry: -entry.missing_count)
    text = pages.page(
        "ledger.html",
        verdict=verdict(page),
        totals=totals(page, keys),
        past=shown,
        past_topics=len(past),
        past_page=number,
        past_pages=last,
        bars=[_bar(page, entry) for entry in worst[:MOST_BARS]],
        more_bars=len(worst) - MOST_BARS,
        kinds_of_offsets=ledger_bars.KINDS,
        page=page,
        damaged=list(page.damaged.items())[:MOST_DAMAGED],
        more_damaged=len(page.damaged) - MOST_DAMAGED,
        upkeep=upkeep,
        most_letters=LETTERS,
    )
    return pages.html(text)


def past_topics(page: LedgerPage, past: set[str]) -> list[PastTopic]:
    """The topics with these keys, the latest first."""
    by_topic: dict[str, list[Entry]] = {}
    for entry in page.entries:
        if (key := topic_key(entry.topic, entry.topic_id)) in past:
            by_topic.setdefault(key, []).append(entry)
    return [
        PastTopic(
            group[0].topic,
            group[0].topic_id,
            partitions=len({entry.partition for entry in group}),
            received=sum(
                max(one.received for one in group if one.partition == number)
                for number in {entry.partition for entry in group}
            ),
            dead_lettered=sum(entry.dead_lettered for entry in group),
            deleted=sum(high - low for entry in group for low, high in entry.deleted),
        )
        for _, group in sorted(by_topic.items(), reverse=True)
    ]


def past_keys(page: LedgerPage) -> set[str]:
    """The keys of the families' past nights and versions that are complete."""
    past, incomplete = set(), set()
    for entry in page.entries:
        key = topic_key(entry.topic, entry.topic_id)
        if entry.missing or entry.faults:
            incomplete.add(key)
        elif page.topics.family_of(entry.topic) != entry.topic and key not in page.asked:
            past.add(key)
    return past - incomplete


def totals(page: LedgerPage, past: set[str]) -> list[Totals]:
    """The sums of each topic and table, without the topics with the keys `past`."""
    by_topic: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in page.entries:
        if topic_key(entry.topic, entry.topic_id) not in past:
            place = entry.topic, entry.topic_id or "", entry.table
            by_topic.setdefault(place, []).append(entry)
    return [
        Totals(
            topic,
            topic_id or None,
            table,
            partitions=len(group),
            received=sum(entry.received for entry in group),
            stored=sum(entry.stored for entry in group),
            dead_lettered=sum(entry.dead_lettered for entry in group),
            missing=sum(entry.missing_count for entry in group),
            in_flight=sum(entry.in_flight_count for entry in group)
            if topic_key(topic, topic_id or None) in page.asked
            else None,
        )
        for (topic, topic_id, table), group in sorted(by_topic.items())
    ]


def _bar(page: LedgerPage, entry: Entry) -> Bar:
    account = page.accounts[entry.table]
    partition = topic_key(entry.topic, entry.topic_id), entry.partition
    spans = {
        "stored": account.stored.intervals(*partition),
        "dead": account.dead_alone.intervals(*partition),
        "flight": entry.in_flight,
        "missing": entry.missing,
    }
    counts = {
        "stored": entry.stored,
        "dead": entry.dead_lettered,
        "flight": entry.in_flight_count,
        "missing": entry.missing_count,
    }
    if partition[0] not in page.asked:
        del counts["flight"]
    label = ", ".join(f"{count:,} {ledger_bars.KINDS[kind]}" for kind, count in counts.items())
    return Bar(entry, bar_svg(entry.low, entry.high, spans, label), label, _gaps(entry.missing))


def _gaps(missing: Sequence[Interval]) -> str:
    """Intervals as people write them: the last offset is within."""
    shown = [f"{low:,}" if high == low + 1 else f"{low:,}–{high - 1:,}" for low, high in missing]
    more = f" and {counted(len(shown) - MOST_GAPS, 'more gap')}" if len(shown) > MOST_GAPS else ""
    return ", ".join(shown[:MOST_GAPS]) + more
