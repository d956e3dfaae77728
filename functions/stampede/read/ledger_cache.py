"""The completeness ledger, read from the store every few seconds at most."""

import time
from typing import NamedTuple

from stampede.read.lookup import Lookup
from stampede.store.dead_letter_offsets import DeadLetterOffsets
from stampede.store.ledger import Account, Entry, accounts, entries, expected

MAX_AGE = 5.0
"""Seconds: reading the ledger takes a listing of every table and of all dead letters."""


class LedgerPage(NamedTuple):
    """The ledger as of one reading."""

    accounts: dict[str, Account]
    entries: list[Entry]


class LedgerCache:
    """Reads the ledger again if the last reading is older than `MAX_AGE`.

    Use it in one thread: whoever asks during a reading waits for that thread, and shares it.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._objects = lookup.objects
        self._tables = {
            table.spec.name: table for table in (lookup.cutouts.table, lookup.detections.table)
        }
        self._letters = DeadLetterOffsets(lookup.objects)
        self._read_at = float("-inf")
        self._page = LedgerPage({}, [])

    def page(self) -> LedgerPage:
        """What is stored, dead-lettered and missing. Raises `StoreDown`."""
        if time.monotonic() - self._read_at > MAX_AGE:
            by_table = accounts(self._objects, self._tables, self._letters)
            self._page = LedgerPage(by_table, entries(by_table, expected(self._objects, {})))
            self._read_at = time.monotonic()
        return self._page
