"""The completeness ledger, read from the store every few seconds at most."""

import threading
import time
from typing import NamedTuple

from stampede.read.lookup import Lookup
from stampede.store.ledger import Account, Entry, accounts, entries, expected

MAX_AGE = 5.0
"""Seconds: reading the ledger takes a listing and a request for each dead-letter object."""


class LedgerPage(NamedTuple):
    """The ledger as of one reading."""

    accounts: dict[str, Account]
    entries: list[Entry]


class LedgerCache:
    """Reads the ledger again if the last reading is older than `MAX_AGE`."""

    def __init__(self, lookup: Lookup) -> None:
        self._objects = lookup.objects
        self._tables = {
            table.spec.name: table for table in (lookup.cutouts.table, lookup.detections.table)
        }
        self._read_at = float("-inf")
        self._page = LedgerPage({}, [])
        self._lock = threading.Lock()

    def page(self) -> LedgerPage:
        """What is stored, dead-lettered and missing. Raises `StoreDown`.

        Concurrent callers wait for one reading and share it.
        """
        with self._lock:
            if time.monotonic() - self._read_at > MAX_AGE:
                by_table = accounts(self._objects, self._tables)
                self._page = LedgerPage(by_table, entries(by_table, expected(self._objects, {})))
                self._read_at = time.monotonic()
            return self._page
