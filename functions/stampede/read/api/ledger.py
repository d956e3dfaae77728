"""Route of the completeness ledger."""

from bisect import bisect_right
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.lookup import response_warnings
from stampede.lookup.errors import BadParameter
from stampede.lookup.ledger_cache import LedgerPage
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.store.integrity.ledger import Entry
from stampede.store.integrity.ledger_json import entry_json
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
    entries = page.entries
    if family is not None:
        entries = [one for one in entries if page.topics.family_of(one.topic) == family]
    following = None
    if limit or after:
        entries = sorted(entries, key=_place)
        start = bisect_right([_place(one) for one in entries], _parsed(after)) if after else 0
        entries = entries[start:]
        if limit and len(entries) > limit:
            following = _token(entries[limit - 1])
        entries = entries[:limit]
    items = []
    for entry in entries:
        account = page.accounts[entry.table]
        partition = topic_key(entry.topic, entry.topic_id), entry.partition
        item = entry_json(entry, page.topics)
        item["stored"]["intervals"] = account.stored.intervals(*partition)
        item["dead_lettered"]["intervals"] = account.dead_lettered.intervals(*partition)
        if partition[0] not in page.asked:
            item["in_flight"] = None
        items.append(item)
    return {
        "ledger": items,
        "next": following,
        "damaged": [{"key": key, "why": why} for key, why in page.damaged.items()],
        "kafka": {"asked": bool(page.asked), "error": page.error},
    }


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
