"""The tables of the duel, as Markdown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from e2e.duel.contests import Result, Start
from e2e.duel.starts import STAGES

MANY = 100  # alerts of which the CPU is worth telling
HEAD = (
    "| contest | by | durable, s: p50 | p98 | max | readable, s: p50 | p98 | max | "
    "CPU of sources and functions, ms an alert | queue-proxy | its share, % | "
    "Knative and KEDA themselves | pod-seconds of functions | most pods |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)
STARTS_HEAD = (
    "| from zero, one alert to one function | by | "
    + " | ".join(f"{stage}, s" for stage in STAGES)
    + " | durable | sink down, s |\n|---|---|"
    + (len(STAGES) + 2) * "--:|"
)


def row(contest: str, by: str, results: Sequence[Result]) -> str:
    """A row of the table: least and greatest of all rounds."""
    columns = zip(*map(figures, results), strict=True)
    return f"| {' | '.join([contest, by, *map(spread, columns)])} |"


def start_rows(by: str, starts: Iterable[Start]) -> Iterator[str]:
    """A row for each start, with the seconds from Kafka's timestamp."""
    for start in starts:
        times = [start.stages.get(stage) for stage in STAGES] + [start.durable, start.down]
        shown = ["" if time is None else f"{time:.2f}" for time in times]
        yield f"| {' | '.join([start.function, by, *shown])} |"


def figures(result: Result) -> list[tuple[float | None, int]]:
    """The figures of a contest, each with its decimals; None: not worth telling."""
    seen, usage = result.seen, result.usage
    times: list[tuple[float | None, int]] = [
        (float(np.percentile(values, percent)) if len(values) else None, 1)
        for values in seen
        for percent in (50, 98, 100)
    ]
    costs = costs_of(usage.cpu(), len(seen.durable))
    pods = (usage.pod_seconds["functions"], 0), (float(usage.most["functions"]), 0)
    return [*times, *costs, *pods]


def costs_of(cpu: Mapping[tuple[str, str], float], count: int) -> list[tuple[float | None, int]]:
    """CPU ms an alert of the work, of queue-proxy, its share of both in percent, of the rest."""
    if count < MANY:
        return [(None, 1), (None, 2), (None, 0), (None, 1)]

    def spent(groups: Sequence[str], proxy: bool | None = None) -> float:
        return sum(
            seconds
            for (group, container), seconds in cpu.items()
            if group in groups and proxy in (None, container == "queue-proxy")
        )

    work, proxy = spent(["functions", "sources"], False), spent(["functions"], True)
    system = spent(["Knative", "KEDA"])
    share = 100 * proxy / (work + proxy) if work + proxy else None
    each = 1e3 / count
    return [(work * each, 1), (proxy * each, 2), (share, 0), (system * each, 1)]


def spread(values: Sequence[tuple[float | None, int]]) -> str:
    """The least and the greatest of a figure."""
    known = [(value, decimals) for value, decimals in values if value is not None]
    if not known:
        return ""
    least, greatest = (f"{value:.{decimals}f}" for value, decimals in (min(known), max(known)))
    return least if least == greatest else f"{least} to {greatest}"
