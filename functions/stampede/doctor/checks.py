"""Runs the checks, each after those that it needs."""

from collections.abc import Iterator
from typing import NamedTuple

from stampede.doctor.certificates import certificates
from stampede.doctor.completeness import ledger
from stampede.doctor.finding import Check, Finding, Installation, Level, NotExamined
from stampede.doctor.kafka import kafka, lag, unread
from stampede.doctor.knative import knative
from stampede.doctor.notifications import notifications
from stampede.doctor.processes import processes
from stampede.doctor.registry import registry
from stampede.doctor.stores import second_site, store
from stampede.doctor.variables import variables
from stampede.errors import StampedeError


class Step(NamedTuple):
    """A check, and what it needs.

    Attributes
    ----------
    check
        Makes it.
    after
        The checks without which it could not tell anything new.
    setting
        The name of the setting without which there is nothing to examine.
    """

    check: Check
    after: tuple[str, ...] = ()
    setting: str = ""


CHECKS = {
    "variables": Step(variables),
    "certificates": Step(certificates),
    "store": Step(store),
    "second site": Step(second_site, setting="replica"),
    "notifications": Step(notifications, ("store",)),
    "Kafka": Step(kafka, setting="topics"),
    "schema registry": Step(registry, setting="schema_registry"),
    "Knative": Step(knative),
    "processes": Step(processes),
    "topics": Step(unread, ("Kafka",), "topics"),
    "lag": Step(lag, ("Kafka",), "topics"),
    "ledger": Step(ledger, ("store", "Kafka")),
}
BEFORE = ("variables", "certificates", "store", "second site", "Kafka", "schema registry")
"""The checks of what must be there before an installation or an upgrade. An upgrade may repair what
the others find."""


class Result(NamedTuple):
    """What a check found.

    Attributes
    ----------
    check
        Its name.
    well
        What it confirms if it finds nothing.
    findings
        What is wrong.
    skipped
        Why the check was not made, or not all of it; empty if it was.
    """

    check: str
    well: str
    findings: list[Finding]
    skipped: str = ""

    @property
    def level(self) -> Level | None:
        """The worst of the findings; None if there are none."""
        levels = {finding.level for finding in self.findings}
        return Level.ERROR if Level.ERROR in levels else next(iter(levels), None)


def examine(installation: Installation) -> Iterator[Result]:
    """Make the checks, one after the other: all of them, or those `BEFORE` an installation.

    An error that a check does not expect is a finding.
    """
    failed: set[str] = set()
    for name, step in CHECKS.items():
        if not installation.installed and name not in BEFORE:
            continue
        well = (step.check.__doc__ or "").partition("\n")[0]
        if why := _why_not(step, installation, failed):
            yield Result(name, well, [], why)
            continue
        findings, skipped = list[Finding](), ""
        try:
            findings.extend(step.check(installation))
        except StampedeError as error:
            findings.append(Finding(Level.ERROR, error.message, ""))
        except NotExamined as why:
            skipped = str(why)
        result = Result(name, well, findings, skipped)
        if result.level is Level.ERROR:
            failed.add(name)
        yield result


def _why_not(step: Step, installation: Installation, failed: set[str]) -> str:
    """Why a check is not made; empty if it is."""
    if step.setting and not getattr(installation.settings, step.setting):
        return f"STAMPEDE_{step.setting.upper()} is not set"
    return next((f"{name} has an error" for name in step.after if name in failed), "")
