"""What the command line asks for."""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

CONTESTS = {
    "burst": "a burst of --alerts within 5 s",
    "starts": "one alert to one function that is at zero; the other one's source is stopped",
    "visits": "three visits of --alerts, one every 39 s",
    "scale-in": "a burst, and from three pods to one in the midst of it",
    "killed": "a burst, and a pod is killed every 6 s",
    "backlog": "--backlog alerts wait in Kafka before anything starts",
    "singles": "single alerts to both functions, each when they are at rest",
}
CONTESTANTS = {
    "kept": "Knative with min-scale 1",
    "one": "Knative with one pod",
    "zero": "Knative with min-scale 0",
    "pod": "functionInPod, one pod",
    "keda-kept": "functionInPod, scaled by KEDA from one pod",
    "keda": "functionInPod, scaled by KEDA from zero",
}
QUICK = ("burst", "starts", "backlog")  # the contests of --quick

_EPILOG = "\n".join(
    [
        "contests, in this order:",
        *(f"  {name:9} {what}" for name, what in CONTESTS.items()),
        "",
        "contestants, in turn for each contest:",
        *(f"  {name:9} {what}" for name, what in CONTESTANTS.items()),
        "",
        "A contest begins once all pods use less than 0.3 cores, or after 180 s. What no contest",
        "measures is off: thumbnails, the second site, scrub, reconcile. compact runs between",
        "contests only. --busy leaves all of it on.",
        "",
        "The minutes begin with the command; a cluster that is not up takes 3 (make e2e-up).",
        "",
        "examples:",
        "  python -m e2e.duel --quick                        8 minutes",
        "  python -m e2e.duel --contest burst --rounds 3     least and greatest of three",
        "  python -m e2e.duel --contest starts --contestant zero \\",
        "      --set functions.cutouts.resources.requests.cpu=200m",
    ]
)


class Plan(NamedTuple):
    """What is fought, by whom and how large.

    `rounds` is how often a burst is repeated; of the other contests there is one each. No contest
    begins that would end after `minutes`. `values` are those of the chart.
    """

    contests: tuple[str, ...]
    contestants: tuple[str, ...]
    rounds: int
    alerts: int
    backlog: int
    minutes: float
    busy: bool
    values: dict[str, str]

    def steps(self) -> list[tuple[str, str]]:
        """Contest and contestant, one after the other; all first rounds come first."""
        once = [(contest, who) for contest in self.contests for who in self.contestants]
        again = [step for step in once if step[0] == "burst"]
        steps = once + (self.rounds - 1) * again
        kept = ("kept", "one", "pod", "keda-kept")  # their pods never start
        never = {("starts", who) for who in kept} | {("scale-in", "one")}
        return [step for step in steps if step not in never]

    @property
    def keda(self) -> bool:
        """Whether KEDA takes part."""
        return any(each.startswith("keda") for each in self.contestants)

    @property
    def most_alerts(self) -> int:
        """At least as many as all contests send."""
        return 100 + len(self.steps()) * max(3 * self.alerts, self.backlog)


def parse(words: Sequence[str] | None = None) -> Plan:
    """The plan of a command line."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.duel",
        description="The same alerts to the same image on one node, by Knative and by KEDA.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    one: dict[str, Any] = {"action": "append", "metavar": "NAME"}
    add("--contest", choices=CONTESTS, **one, help="only this one; may be repeated")
    add("--contestant", choices=CONTESTANTS, **one, help="only this one; may be repeated")
    add("--quick", action="store_true", help=f"{', '.join(QUICK)}, 4,000 alerts, one round")
    add("--rounds", type=positive, help="of the contest burst (2)")
    add("--alerts", type=positive, help="of a burst or visit (10,000)")
    add("--backlog", type=positive, help="alerts that wait (as --alerts)")
    add("--minutes", type=float, help="no contest begins that would end later (25; quick: 8)")
    add("--busy", action="store_true", help="all functions run meanwhile, as they do always")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a value of the chart")
    given = parser.parse_args(words)
    for pair in given.set:
        if "=" not in pair:
            parser.error(f"--set {pair}: KEY=VALUE is needed")
    quick = given.quick
    alerts = given.alerts or (4_000 if quick else 10_000)
    return Plan(
        tuple(
            each for each in CONTESTS if each in (given.contest or (QUICK if quick else CONTESTS))
        ),
        tuple(each for each in CONTESTANTS if each in (given.contestant or CONTESTANTS)),
        given.rounds or (1 if quick else 2),
        alerts,
        given.backlog or alerts,
        given.minutes or (8.0 if quick else 25.0),
        given.busy,
        dict(pair.split("=", 1) for pair in given.set),
    )


def positive(text: str) -> int:
    number = int(text.replace(",", ""))
    if number < 1:
        raise ValueError(text)
    return number
