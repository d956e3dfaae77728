"""``make e2e-duel``: the same alerts to the same image on one node, by Knative and by KEDA.

Both ways run `cutouts` and `lightcurves` with at most three pods each. Times begin at Kafka's
timestamp of an alert. An alert is durable when the store has it in all tables, and readable when
the ingress answers with its image, light curve and packet.

``python -m e2e.duel --help`` names the contests and contestants.
"""

import sys
import time
from pathlib import Path

from e2e.cluster import Failed, choose
from e2e.cluster.built import keda
from e2e.cluster.built.binaries import tool
from e2e.cluster.steps import exclusive_use, log_progress
from e2e.duel import table
from e2e.duel.arena import Arena, Contestant, arena
from e2e.duel.contestants import InPod
from e2e.duel.contests import Result, fight, starts
from e2e.duel.plan import CONTESTS, Plan, parse
from e2e.duel.route import to_pods
from e2e.on_cluster.__main__ import temporarily_up
from e2e.on_cluster.kubernetes import Cluster
from e2e.places import ROOT

# How long a contest takes with all that comes before it, until one of its kind has shown it.
EXPECTED = {"starts": 160.0, "visits": 320.0, "singles": 120.0}
EXPECTED_SECONDS = 80.0  # of the others
_BEGIN = time.monotonic()


def main() -> int:
    """Run the contests, and write the tables; the exit status."""
    plan = parse()
    report = Report(plan)
    backend = choose()
    try:
        with exclusive_use(), temporarily_up(backend):
            if plan.keda:
                keda.up(backend)  # building it takes minutes
            cluster = Cluster(backend, tool("helm"))
            with to_pods(cluster), arena(cluster, plan) as (place, contestants):
                duel(place, contestants, report)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; finished builds are kept", file=sys.stderr)
        return 130
    print(report)
    return 1 if report.failed else 0


class Report:
    """What was measured so far, in ``build/duel.md`` after each contest."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._results: dict[tuple[str, str], list[Result]] = {}
        self._starts: list[str] = []
        self._notes: list[str] = []
        self.failed = False

    def add(self, contest: str, by: str, result: Result) -> None:
        """Add a contest; if it was there, its row has the least and the greatest of both."""
        self._results.setdefault((contest, by), []).append(result)
        self._notes += [f"{contest}: {note}." for note in result.notes]
        self._write(table.row(contest, by, [result]))

    def add_starts(self, rows: list[str]) -> None:
        """Add the rows of starts."""
        self._starts += rows
        self._write("\n".join(rows))

    def note(self, text: str) -> None:
        """Add a sentence."""
        self._notes.append(text)
        self._write(text)

    def fail(self, text: str) -> None:
        """Add a sentence about a contest that failed."""
        self.failed = True
        self.note(text)

    def __str__(self) -> str:
        plan = self._plan
        named = {
            name: what.replace("--alerts", f"{plan.alerts:,}") for name, what in CONTESTS.items()
        }
        named["backlog"] = named["backlog"].replace("--backlog", f"{plan.backlog:,}")
        off = "all functions ran" if plan.busy else "no thumbnails, second site, scrub, reconcile"
        parts = [f"Two cores, all of it on one node; {off}. Values: {plan.values or 'the usual'}."]
        if self._results:
            rows = [
                table.row(f"{contest}: {named[contest]}", by, results)
                for (contest, by), results in sorted(self._results.items(), key=self._order)
            ]
            parts.append("\n".join([table.HEAD, *rows]))
        if self._starts:
            parts.append("\n".join([table.STARTS_HEAD, *self._starts]))
        return "\n\n".join([*parts, "\n".join(f"- {note}" for note in self._notes)])

    def _order(self, item: tuple[tuple[str, str], object]) -> int:
        return self._plan.contests.index(item[0][0])

    def _write(self, line: str) -> None:
        print(line, flush=True)
        (ROOT / "build").mkdir(exist_ok=True)
        Path(ROOT / "build" / "duel.md").write_text(f"{self}\n")


def duel(place: Arena, contestants: dict[str, Contestant], report: Report) -> None:
    """Run the contests that there is time for. One that fails ends no other."""
    before: Contestant | None = None
    left_out, longest = [], dict(EXPECTED)
    for contest, who in place.plan.steps():
        contestant = contestants[who]
        name = f"{contest} by {contestant.title}"
        begin = time.monotonic()
        expected = longest.get(contest, EXPECTED_SECONDS)
        if begin - _BEGIN + expected > 60 * place.plan.minutes:
            left_out.append(name)
            continue
        try:
            if before is not contestant:
                change(place, contestants, before, contestant)
            cores = place.rest()
            log_progress(f"{name}; all pods use {cores:.2f} cores")
            if contest == "starts":
                report.add_starts([*table.start_rows(contestant.title, starts(place, contestant))])
                contestant.stop()
            else:
                report.add(contest, contestant.title, fight(place, contestant, contest))
            place.tidy()
        except Exception as error:
            report.fail(f"{name} failed: {error_lines(error)}")
            before = None  # it may have left anything
        else:
            before = contestant if contest != "starts" else None  # that leaves one source only
            took = time.monotonic() - begin
            longest[contest] = max(took, longest.get(contest, 0.0))
    if left_out:
        report.note(f"no time was left for {'; '.join(left_out)}")


def error_lines(error: Exception) -> str:
    """The first and the last line of an error: often a command, and what it printed last."""
    lines = (str(error) or repr(error)).splitlines()
    return ": ".join(dict.fromkeys([lines[0], lines[-1]]))


def change(
    place: Arena,
    contestants: dict[str, Contestant],
    before: Contestant | None,
    contestant: Contestant,
) -> None:
    """Have the next contestant at rest, and nothing of the others."""
    if before:
        before.stop()
    else:
        contestants["keda"].stop()
    if isinstance(contestant, InPod):  # Knative keeps no pod meanwhile
        contestants["zero"].prepare()
        contestants["zero"].stop()
    contestant.prepare()
    contestant.stop()
    place.skip(contestant)
    contestant.start()
    contestant.rest()


if __name__ == "__main__":
    sys.exit(main())
