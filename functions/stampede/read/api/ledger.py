"""Route of the completeness ledger."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.lookup import response_warnings
from stampede.lookup.errors import BadParameter
from stampede.lookup.ledger_cache import LedgerPage
from stampede.read.service import service_of
from stampede.read.summaries import known_histories
from stampede.read.web import parameters
from stampede.store.integrity.ledger import Entry
from stampede.store.integrity.ledger_json import entry_json
from stampede.store.integrity.topic_entries import TopicEntries, in_order
from stampede.store.offsets.coverage import topic_key

MOST_ITEMS = 100_000
Place = tuple[str, int, str]
"""Key of the topic, partition, table."""


async def get_ledger(request: Request) -> Response:
    """Per table and topic partition: the offsets that are stored, dead-lettered and missing."""
    service = service_of(request)
    page = await service.run_ledger(service.ledger.page)
    if page.damaged:
        response_warnings.may_lack(response_warnings.counted(len(page.damaged), "damaged object"))
    query = request.query_params
    limit = parameters.whole_number(query, "limit", 1, MOST_ITEMS)
    body = as_json(page, query.get("family"), limit, query.get("after"))
    summary = await service.run_ledger(service.histories.summary)
    body["histories"] = known_histories.as_json(summary)
    return JSONResponse(body, headers={"Cache-Control": "no-cache"})


def as_json(
    page: LedgerPage, family: str | None = None, limit: int | None = None, after: str | None = None
) -> dict[str, Any]:
    """One item per table and topic partition; intervals of offsets are half-open.

    What `damaged` objects hold does not count. The fields are those of `stampede audit --json`, and
    the intervals that are stored.

    Parameters
    ----------
    family
        Only items of this family or topic.
    limit
        At most so many items, in the order of topics, from the one behind `after` on. `next` is the
        `after` of the items that follow, None if there are none.
    """
    topics = [
        topic
        for topic in page.by_topic.values()
        if family in (None, page.topics.family_of(topic.topic))
    ]
    following = None
    if limit or after:
        place = _parsed(after) if after else None
        later = (entry for entry in _by_place(topics, place) if not place or _place(entry) > place)
        entries = list(islice(later, limit))
        if entries and limit and next(later, None):
            following = _token(entries[-1])
    else:
        entries = list(in_order(topics, page.accounts))
    items = []
    for entry in entries:
        account = page.accounts[entry.table]
        partition = topic_key(entry.topic, entry.topic_id), entry.partition
        item = entry_json(entry, page.topics)
        item["stored"]["intervals"] = account.stored.intervals(*partition)
        item["dead_lettered"]["intervals"] = account.dead_lettered.intervals(*partition)
        item["accepted"]["intervals"] = account.accepted_alone.intervals(*partition)
        if partition[0] not in page.asked:
            item["in_flight"] = None
        items.append(item)
    return {
        "ledger": items,
        "next": following,
        "damaged": [{"key": key, "why": why} for key, why in page.damaged.items()],
        "kafka": {"asked": bool(page.asked), "error": page.error},
    }


def _by_place(topics: Sequence[TopicEntries], after: Place | None) -> Iterator[Entry]:
    """The entries by topic, partition and table, from the topic of `after` on."""
    for topic in topics:
        if after is None or topic.key >= after[0]:
            yield from sorted(topic.entries, key=_place)


def _place(entry: Entry) -> Place:
    return topic_key(entry.topic, entry.topic_id), entry.partition, entry.table


def _token(entry: Entry) -> str:
    """The place of an entry as text. No topic's key has a ``/``."""
    return "/".join(map(str, _place(entry)))


def _parsed(token: str) -> Place:
    key, _, rest = token.partition("/")
    number, _, table = rest.partition("/")
    if not (number.isdecimal() and len(number) < 20 and table):
        raise BadParameter("after", "give what `next` of the response before says")
    return key, int(number), table
