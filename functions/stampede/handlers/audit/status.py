"""The status of a running system, from its processes' metrics and from the store."""

import time
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from http.client import HTTPException
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from stampede.config.settings import Settings
from stampede.events import ALERT_FUNCTIONS, BOTH_TABLES
from stampede.events.http.probes import is_ready
from stampede.lookup.ledger_cache import LedgerCache
from stampede.store.integrity import ledger
from stampede.store.integrity.dead_letter_offsets import DeadLetterOffsets
from stampede.store.open import open_objects
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table

Numbers = dict[str, list[tuple[Mapping[str, str], float]]]


class Flow(NamedTuple):
    """A function that takes alerts: its rate, and the account of its table.

    `accepted` of the dead letters are accepted as rightly refused.
    """

    function: str
    per_second: float
    stored: int
    dead_lettered: int
    missing: int
    lag: int | None
    accepted: int = 0


class View(NamedTuple):
    """The status at one moment."""

    states: Mapping[str, str]
    flows: list[Flow]
    runs: dict[str, int]
    quarantined: list[str]


class Status:
    """Reads the status of a system; rates are those since the previous reading.

    Parameters
    ----------
    settings
        How to reach the store.
    urls
        URL of each process by name.
    states
        Returns the state of each process by name, "running" or what else it is.
    """

    def __init__(
        self,
        settings: Settings,
        urls: Mapping[str, str],
        states: Callable[[], Mapping[str, str]],
    ) -> None:
        self._urls, self._states = urls, states
        self._objects = open_objects(settings)
        self._letters = DeadLetterOffsets(self._objects)
        self._tables = {name: Table(self._objects, spec) for name, spec in TABLES.items()}
        self._asked = LedgerCache(self._objects, self._tables, settings)
        self._before: dict[str, tuple[float, float]] = {}
        self._damaged: dict[str, str] = {}

    def entries(self) -> list[ledger.Entry]:
        """The ledger in the store now. Raises `StoreDown`."""
        accounts = ledger.accounts(self._objects, self._tables, self._letters)
        self._damaged = ledger.quarantined(accounts)
        return ledger.entries(accounts, ledger.expected(self._objects, self._damaged))

    def read(self) -> View:
        """The status now. Raises `StoreDown`."""
        entries = self.entries()
        if any(entry.missing for entry in entries):
            entries = self._asked.page().entries  # Kafka knows what is in flight or gone
        numbers = cache(self._numbers)  # `alerts` is asked once for both functions
        flows = []
        for function, table in ALERT_FUNCTIONS.items():
            of_table = [entry for entry in entries if entry.table == table]
            process = function if function in self._urls else BOTH_TABLES
            # What reads Kafka: the source of both functions, or the function itself.
            reader = numbers("source") or numbers(process)
            lag = [value for _, value in reader.get("stampede_source_lag_events", [])]
            flows.append(
                Flow(
                    function,
                    self._rate(function, numbers(process)),
                    sum(entry.stored for entry in of_table),
                    sum(entry.dead_lettered for entry in of_table),
                    sum(entry.missing_count for entry in of_table),
                    int(sum(lag)) if lag else None,
                    sum(entry.accepted for entry in of_table),
                )
            )
        runs = {name: len(table.runs()) for name, table in self._tables.items()}
        return View(self._states(), flows, runs, [*self._damaged])

    def _rate(self, function: str, numbers: Numbers) -> float:
        """Alerts stored per second since the last call, by the metrics of a function's process."""
        samples = numbers.get("stampede_flush_alerts_total", [])
        now, total = time.monotonic(), sum(value for _, value in samples)
        then, before = self._before.get(function, (now, total))
        self._before[function] = now, total
        return max(0.0, total - before) / (now - then) if now > then else 0.0

    def _numbers(self, name: str) -> Numbers:
        """A process's metrics; empty if it does not answer."""
        numbers: Numbers = {}
        if name not in self._urls:
            return numbers
        with (
            suppress(OSError, HTTPException, ValueError),
            urllib.request.urlopen(f"{self._urls[name]}/metrics", timeout=2) as response,
        ):
            for family in text_string_to_metric_families(response.read().decode()):
                for sample in family.samples:
                    numbers.setdefault(sample.name, []).append((sample.labels, sample.value))
        return numbers


def states_of(urls: Mapping[str, str]) -> dict[str, str]:
    """The state of each process: "running", or "not ready" if its readiness probe fails."""
    with ThreadPoolExecutor(max(1, len(urls))) as pool:
        ready = pool.map(is_ready, urls.values())
        return {
            name: "running" if response else "not ready"
            for name, response in zip(urls, ready, strict=True)
        }
