"""Route of the completeness ledger."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.read.ledger_cache import LedgerPage
from stampede.read.service import service_of
from stampede.store.coverage import topic_key


async def get_ledger(request: Request) -> Response:
    """Per table and topic partition: the offsets that are stored, dead-lettered and missing."""
    service = service_of(request)
    page = await service.run_ledger(service.ledger.page)
    return JSONResponse(as_json(page), headers={"Cache-Control": "no-cache"})


def as_json(page: LedgerPage) -> dict[str, list[dict[str, Any]]]:
    """One item per table and topic partition; intervals of offsets are half-open."""
    items = []
    for entry in page.entries:
        stored, dead_lettered, *_ = page.accounts[entry.table]
        partition = topic_key(entry.topic, entry.topic_id), entry.partition
        items.append(
            {
                "table": entry.table,
                "topic": entry.topic,
                "topic_id": entry.topic_id,
                "partition": entry.partition,
                "low": entry.low,
                "high": entry.high,
                "stored": {"count": entry.stored, "intervals": stored.intervals(*partition)},
                "dead_lettered": {
                    "count": entry.dead_lettered,
                    "intervals": dead_lettered.intervals(*partition),
                },
                "missing": {"count": entry.missing_count, "intervals": entry.missing},
            }
        )
    return {"ledger": items}
