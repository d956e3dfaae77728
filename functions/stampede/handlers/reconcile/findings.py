"""What a pass of `reconcile` finds: counted, reported, and shown as metrics."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from stampede.telemetry import reconcile_metrics

NOT_REPLICATED = "not-replicated"
KINDS = (
    "unindexed",
    "without-thumbnails",
    "without-positions",
    "without-observations",
    NOT_REPLICATED,
    "expired",
    "superseded",
    "orphaned",
    "cut-off",
    "damaged",
    "lost",
)
"""The kinds of findings: values of the metrics' label ``what``."""


class Finding(NamedTuple):
    """An object that is not as it should be, and whether it was repaired.

    A `young` one is so new that its event may still be under way.
    """

    kind: str
    key: str
    repaired: bool
    young: bool = False


class Copies(NamedTuple):
    """Objects copied from one site to the other, and their bytes."""

    objects: int = 0
    bytes: int = 0


Report = Callable[[Finding], None]


class Findings:
    """The findings of one pass; several threads may add to them.

    Parameters
    ----------
    repair
        False in a dry run: then nothing counts as repaired.
    report
        Called with each finding, after its repair.
    after
        Called last, for each finding. It may raise, to end the step.
    """

    def __init__(
        self, repair: bool, report: Report, after: Callable[[], None] = lambda: None
    ) -> None:
        self._after = after
        self.counts = Counter[str]()
        self._young = Counter[str]()
        self.copies = Copies()
        self._repair = repair
        self._report = report
        self._lock = threading.Lock()

    def add(self, kind: str, key: str, repaired: bool = True, young: bool = False) -> None:
        """Count and report a finding.

        The metric of what was found leaves out `young` ones: on a busy night every pass finds
        some, and nothing is wrong.
        """
        repaired = repaired and self._repair
        with self._lock:
            self.counts[kind] += 1
            self._young[kind] += young
            self._report(Finding(kind, key, repaired, young))
        if repaired:
            reconcile_metrics.RECONCILE_REPAIRED.labels(kind).inc()
        self._after()

    def add_each(self, kind: str, found: Iterable[tuple[str, bool]]) -> None:
        """Count and report findings: the key of each, and whether it was repaired."""
        for key, repaired in found:
            self.add(kind, key, repaired)

    def add_copy(self, size: int) -> None:
        """Count an object of `size` bytes that was copied."""
        with self._lock:
            self.copies = Copies(self.copies.objects + 1, self.copies.bytes + size)

    def show(self) -> None:
        """Set the metrics to the counts of this pass."""
        for kind in KINDS:
            reconcile_metrics.RECONCILE_FOUND.labels(kind).set(
                self.counts[kind] - self._young[kind]
            )
