"""Route of the completeness ledger, and the one place that keeps it for a moment."""

import threading
import time
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.read.lookup import Lookup
from stampede.store.ledger import Account, Entry, accounts, entries, expected

MAX_AGE = 5.0
"""Seconds: reading it costs a listing, and a request for every dead-letter object."""


class Page(NamedTuple):
    """What the ledger said when it was last read."""

    accounts: dict[str, Account]
    entries: list[Entry]


class Ledger:
    """The ledger, read again when it is older than `MAX_AGE`."""

    def __init__(self, lookup: Lookup) -> None:
        self._objects = lookup.objects
        self._tables = {
            fresh.table.spec.name: fresh.table for fresh in (lookup.cutouts, lookup.detections)
        }
        self._read = float("-inf")
        self._page = Page({}, [])
        self._lock = threading.Lock()

    def page(self) -> Page:
        """What is stored, dead-lettered and missing. Raises `StoreDown`."""
        with self._lock:
            if time.monotonic() - self._read > MAX_AGE:
                found = accounts(self._objects, self._tables)
                self._page = Page(found, entries(found, expected(self._objects)))
                self._read = time.monotonic()
            return self._page


async def get_ledger(request: Request) -> Response:
    """Per table and partition: what is stored, dead-lettered and missing."""
    page: Page = await request.app.state.small(request.app.state.ledger.page)
    return JSONResponse(as_json(page), headers={"Cache-Control": "no-cache"})


def as_json(page: Page) -> dict[str, list[dict]]:
    """One item per table and topic partition; intervals of offsets are half-open."""
    lines = []
    for entry in page.entries:
        stored, dead = page.accounts[entry.table]
        where = entry.topic, entry.partition
        lines.append(
            {
                "table": entry.table,
                "topic": entry.topic,
                "partition": entry.partition,
                "low": entry.low,
                "high": entry.high,
                "stored": {"count": entry.stored, "intervals": stored.intervals(*where)},
                "dead_lettered": {
                    "count": entry.dead_lettered,
                    "intervals": dead.intervals(*where),
                },
                "missing": {"count": entry.missing_count, "intervals": entry.missing},
            }
        )
    return {"ledger": lines}
