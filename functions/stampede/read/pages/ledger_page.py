"""Route of the page of the ledger: what is stored and missing, dead letters, and the upkeep."""

from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from stampede.lookup.histories_summary import HistoriesSummary, Lacking
from stampede.lookup.ledger_cache import LedgerPage
from stampede.lookup.response_warnings import counted
from stampede.read.pages import page as pages
from stampede.read.pages.verdict import verdict
from stampede.read.plots import ledger_bars
from stampede.read.plots.ledger_bars import bar_svg
from stampede.read.service import service_of
from stampede.read.summaries.maintenance_state import LETTERS, Letter
from stampede.read.web import parameters
from stampede.store.integrity.ledger import Entry, letters_in_words
from stampede.store.integrity.topic_entries import TopicEntries, in_order
from stampede.store.offsets.coverage import Interval, topic_key

MOST_BARS = 100
"""Partitions on the page, those that lack most first; totals are of all."""
MOST_GAPS = 5
"""Missing intervals that are written out for a partition."""
MOST_DAMAGED = 20
MOST_LACKING = 20
"""Detectors of visits with detections that never came, those of which most is missing first."""
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
    accepted: int
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
    accepted: int
    deleted: int


class Bar(NamedTuple):
    """One partition in one table: its entry, its bar as SVG, its counts and first gaps in words."""

    entry: Entry
    svg: str
    counts: str
    gaps: str


class LackingDetector(NamedTuple):
    """A detector of a visit, of a night and survey, with detections that never came."""

    survey: str
    night: int
    lacking: Lacking


async def ledger_page(request: Request) -> Response:
    """`/ledger`: the completeness ledger, for people."""
    service = service_of(request)
    page = await service.run_ledger(service.ledger.page)
    upkeep = await service.run_upkeep(service.upkeep.upkeep)
    histories = await service.run_ledger(service.histories.summary)
    past = past_topics(page)
    number = parameters.whole_number(request.query_params, "page", 1, MOST_PAGES) or 1
    last = max(1, -(-len(past) // PAST_TOPICS))
    number = min(number, last)
    shown = past[(number - 1) * PAST_TOPICS : number * PAST_TOPICS]
    worst = worst_entries(page)
    text = pages.page(
        "ledger.html",
        verdict=verdict(page),
        totals=totals(page, {topic.key for topic in past}),
        past=[_past(topic) for topic in shown],
        past_topics=len(past),
        past_page=number,
        past_pages=last,
        bars=[_bar(page, entry) for entry in worst],
        more_bars=sum(len(topic.entries) for topic in page.by_topic.values()) - MOST_BARS,
        kinds_of_offsets=ledger_bars.KINDS,
        page=page,
        damaged=list(page.damaged.items())[:MOST_DAMAGED],
        more_damaged=len(page.damaged) - MOST_DAMAGED,
        histories=histories,
        lacking=lacking_detectors(histories) if histories else [],
        upkeep=upkeep,
        letters=[(letter, is_accepted(page, letter)) for letter in upkeep.letters],
        letters_in_words=letters_in_words,
        most_letters=LETTERS,
    )
    return pages.html(text)


def is_accepted(page: LedgerPage, letter: Letter) -> bool:
    """Whether every letter with the position of this one is accepted; False without a position."""
    if letter.topic is None or letter.partition is None or letter.offset is None:
        return False
    place = letter.topic, letter.partition, letter.offset
    return place in page.accounts[letter.table].accepted


def past_topics(page: LedgerPage) -> list[TopicEntries]:
    """The families' past nights and versions that are complete, the latest first."""
    return [
        topic
        for key, topic in reversed([*page.by_topic.items()])
        if key not in page.asked
        and not topic.lacks
        and page.topics.family_of(topic.topic) != topic.topic
    ]


def _past(topic: TopicEntries) -> PastTopic:
    sums = topic.by_table.values()
    return PastTopic(
        topic.topic,
        topic.topic_id,
        partitions=max(one.partitions for one in sums),
        received=topic.received,
        dead_lettered=sum(one.dead_lettered for one in sums),
        accepted=sum(one.accepted for one in sums),
        deleted=topic.deleted,
    )


def lacking_detectors(summary: HistoriesSummary) -> list[LackingDetector]:
    """The detectors of which most never came, at most `MOST_LACKING`."""
    found = [
        LackingDetector(night.survey, night.night, each)
        for night in summary.nights
        for each in night.worst
    ]
    return sorted(found, key=lambda one: one.lacking.rank)[:MOST_LACKING]


def worst_entries(page: LedgerPage) -> list[Entry]:
    """The entries of which most is missing, at most `MOST_BARS`."""
    topics = sorted(page.by_topic.values(), key=lambda topic: not topic.lacks)
    lacking = [topic for topic in topics if topic.lacks]
    # Enough topics for all bars, with those that lack anything.
    chosen = {topic.key for topic in topics[: len(lacking) + MOST_BARS]}
    some = [topic for key, topic in page.by_topic.items() if key in chosen]
    entries = in_order(some, page.accounts)
    return sorted(entries, key=lambda entry: -entry.missing_count)[:MOST_BARS]


def totals(page: LedgerPage, past: set[str]) -> list[Totals]:
    """The sums of each topic and table, without the topics with the keys `past`."""
    found = [
        Totals(
            topic.topic,
            topic.topic_id,
            table,
            *sums[:-1],
            in_flight=sums.in_flight if topic.key in page.asked else None,
        )
        for topic in page.by_topic.values()
        if topic.key not in past
        for table, sums in topic.by_table.items()
    ]
    return sorted(found, key=lambda one: (one.topic, one.topic_id or "", one.table))


def _bar(page: LedgerPage, entry: Entry) -> Bar:
    account = page.accounts[entry.table]
    partition = topic_key(entry.topic, entry.topic_id), entry.partition
    spans = {
        "stored": account.stored.intervals(*partition),
        "accepted": account.accepted_alone.intervals(*partition),
        "dead": (account.dead_alone - account.accepted).intervals(*partition),
        "flight": entry.in_flight,
        "missing": entry.missing,
    }
    counts = {
        "stored": entry.stored,
        "accepted": entry.accepted,
        "dead": entry.dead_lettered - entry.accepted,
        "flight": entry.in_flight_count,
        "missing": entry.missing_count,
    }
    if partition[0] not in page.asked:
        del counts["flight"]
    if not entry.accepted:
        del counts["accepted"]
    label = ", ".join(
        f"{count:,} {ledger_bars.KINDS[kind].removesuffix('s' if count == 1 else '')}"
        for kind, count in counts.items()
    )
    return Bar(entry, bar_svg(entry.low, entry.high, spans, label), label, _gaps(entry.missing))


def _gaps(missing: Sequence[Interval]) -> str:
    """Intervals as people write them: the last offset is within."""
    shown = [f"{low:,}" if high == low + 1 else f"{low:,}–{high - 1:,}" for low, high in missing]
    more = f" and {counted(len(shown) - MOST_GAPS, 'more gap')}" if len(shown) > MOST_GAPS else ""
    return ", ".join(shown[:MOST_GAPS]) + more
