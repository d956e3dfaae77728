"""Route of the completeness ledger."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.lookup import response_warnings
from stampede.lookup.ledger_cache import LedgerPage
from stampede.read.service import service_of
from stampede.store.integrity.ledger_json import entry_json
from stampede.store.offsets.coverage import topic_key


async def get_ledger(request: Request) -> Response:
    """Per table and topic partition: the offsets that are stored, dead-lettered and missing."""
    service = service_of(request)
    page = await service.run_ledger(service.ledger.page)
    if page.damaged:
        response_warnings.may_lack(response_warnings.counted(len(page.damaged), "damaged object"))
    return JSONResponse(as_json(page), headers={"Cache-Control": "no-cache"})


def as_json(page: LedgerPage) -> dict[str, Any]:
    """One item per table and topic partition; intervals of offsets are half-open.

    What `damaged` objects hold does not count. The fields are those of `stampede audit --json`, and
    the intervals that are stored.
    """
    items = []
    for entry in page.entries:
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
        "damaged": [{"key": key, "why": why} for key, why in page.damaged.items()],
        "kafka": {"asked": bool(page.asked), "error": page.error},
    }
