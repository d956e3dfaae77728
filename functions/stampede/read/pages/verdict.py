"""What the ledger says, in one sentence."""

from typing import NamedTuple

from stampede.lookup.ledger_cache import LedgerPage
from stampede.lookup.response_warnings import counted


class Verdict(NamedTuple):
    """`well` is false if anything is missing, damaged or in doubt; None if nothing was received."""

    well: bool | None
    sentence: str

    @property
    def mark(self) -> str:
        """The verdict in a word, for a reader who sees no colour; also a class of the page."""
        return {None: "empty", True: "good", False: "bad"}[self.well]


def verdict(page: LedgerPage) -> Verdict:
    """The verdict of a ledger."""
    faults = [_missing(page, table) for table in page.accounts]
    if page.damaged:
        faults.append(f"{counted(len(page.damaged), 'damaged object')} left out")
    faults += [f"{entry.topic}: {why}" for entry in page.entries for why in entry.faults]
    if found := [fault for fault in faults if fault]:
        more = f"; {counted(len(found) - 3, 'more fault')}" if len(found) > 3 else ""
        return Verdict(False, f"{'; '.join(found[:3])}{more}.")
    received = max((_sum(page, table, "received") for table in page.accounts), default=0)
    if not received:
        return Verdict(None, "No alert has been received yet.")
    dead = sum(_sum(page, table, "dead_lettered") for table in page.accounts)
    flight = max(_sum(page, table, "in_flight_count") for table in page.accounts)
    letters = (
        f" or {'a dead letter' if dead == 1 else f'one of {dead:,} dead letters'}" if dead else ""
    )
    moving = f", except {flight:,} in flight" if flight else ""
    return Verdict(
        True, f"Each of {counted(received, 'alert')} received is stored{letters}{moving}."
    )


def _missing(page: LedgerPage, table: str) -> str:
    missing = _sum(page, table, "missing_count")
    return f"{counted(missing, 'alert')} missing in {table}" if missing else ""


def _sum(page: LedgerPage, table: str, count: str) -> int:
    return sum(getattr(entry, count) for entry in page.entries if entry.table == table)
