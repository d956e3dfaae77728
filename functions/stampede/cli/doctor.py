"""`stampede doctor`: examine an installation."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stampede.cli.options import Data

if TYPE_CHECKING:
    from stampede.doctor.checks import Result


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="for programs: a list of checks")] = False,
    before: Annotated[
        bool,
        typer.Option(
            "--before-install",
            help="only what an installation or upgrade needs: certificates, stores, keys, Kafka",
        ),
    ] = False,
    data: Data = None,
) -> None:
    """Examine everything that Stampede needs, and say what is wrong and what mends it.

    Of the `stampede up` that is running, or of the settings. It writes one object under a prefix of
    its own and deletes it again; it changes nothing else.

    The exit status is 0 if all is well, 1 for warnings, and 2 for errors.
    """
    from stampede.cli.running import Running, running
    from stampede.config.settings import Settings
    from stampede.doctor.checks import examine
    from stampede.doctor.finding import Installation, Level

    system = running(data) or Running(Settings(), {})
    installation = Installation(system.settings, system.urls, not before, system.logs)
    results = []
    for result in examine(installation):
        results.append(result)
        if not as_json:
            print_result(result)
    if as_json:
        typer.echo(json.dumps([as_dict(result) for result in results], indent=1))
    levels = {result.level for result in results}
    sys.exit(2 if Level.ERROR in levels else 1 if Level.WARNING in levels else 0)


def print_result(result: Result) -> None:
    """Print what a check found, as soon as it is known."""
    if result.skipped:
        typer.echo(f"-  {result.check}: not examined: {result.skipped}")
    elif not result.findings:
        typer.echo(f"ok {result.check}: {result.well}")
    for finding in result.findings:
        typer.echo(f"{finding.level.upper()} {result.check}: {finding.fault}")
        if finding.repair:
            typer.echo(f"   to mend it: {finding.repair}")


def as_dict(result: Result) -> dict[str, Any]:
    """What a check found, for `--json`."""
    return {
        "check": result.check,
        "level": result.level or ("skipped" if result.skipped else "ok"),
        "skipped": result.skipped,
        "findings": [finding._asdict() for finding in result.findings],
    }
