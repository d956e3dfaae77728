"""What the ledger says, in one sentence."""

from collections.abc import Iterator
from typing import NamedTuple

from stampede.lookup.ledger_cache import LedgerPage
from stampede.lookup.response_warnings import counted
from stampede.store.integrity.ledger import count_dead, count_refused
from stampede.store.integrity.topic_entries import Sums, in_order


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
    topics = [*page.by_topic.values()]
    sums = {table: Sums.of([topic.by_table[table] for topic in topics]) for table in page.accounts}
    faults = [fault for table in sums for fault in _missing(page, table)]
    if page.damaged:
        faults.append(f"{counted(len(page.damaged), 'damaged object')} left out")
    lacking = [topic for topic in topics if topic.lacks]
    for entry in in_order(lacking, page.accounts):
        faults += [f"{entry.topic}: {why}" for why in entry.faults]
    if faults:
        more = f"; {counted(len(faults) - 3, 'more fault')}" if len(faults) > 3 else ""
        return Verdict(False, f"{'; '.join(faults[:3])}{more}.")
    received = max((of_table.received for of_table in sums.values()), default=0)
    if not received:
        return Verdict(None, "No alert has been received yet.")
    dead = count_dead(page.accounts)
    flight = max(of_table.in_flight for of_table in sums.values())
    letters = _letters(dead, dead - count_refused(page.accounts))
    moving = f", except {flight:,} in flight" if flight else ""
    return Verdict(
        True, f"Each of {counted(received, 'alert')} received is stored{letters}{moving}."
    )


def _missing(page: LedgerPage, table: str) -> Iterator[str]:
    """What a table lacks: of topics that Kafka was not asked about it may be in flight."""
    lacks = {True: 0, False: 0}
    for key, topic in page.by_topic.items():
        lacks[key in page.settled] += topic.by_table[table].missing
    if lacks[True]:
        yield f"{counted(lacks[True], 'alert')} missing in {table}"
    if lacks[False]:
        alerts = counted(lacks[False], "alert")
        yield f"{alerts} missing in {table} or in flight: Kafka was not asked"


def _letters(dead: int, accepted: int) -> str:
    """What else an alert may be than stored; `accepted` of the dead letters are accepted."""
    if not dead:
        return ""
    kind = "accepted dead letter" if accepted == dead else "dead letter"
    if dead == 1:
        return f" or {'an' if accepted else 'a'} {kind}"
    some = f" ({accepted:,} of them accepted)" if 0 < accepted < dead else ""
    return f" or one of {dead:,} {kind}s{some}"
