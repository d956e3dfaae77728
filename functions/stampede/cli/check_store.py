"""`stampede check-store`: check that an S3 endpoint does what Stampede needs."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import Data
from stampede.errors import SetupError

if TYPE_CHECKING:
    from stampede.store.objects.object_store import Objects
    from stampede.store.step_times import StepTimes


def check_store(
    data: Data = None,
    history: Annotated[
        bool,
        typer.Option(help="Show the checks that `reconcile` made each hour, and check nothing."),
    ] = False,
) -> None:
    """Check that the store's S3 endpoint does what Stampede needs.

    The store is that of the running `stampede up`, or STAMPEDE_STORE. Writes objects under a prefix
    of its own and deletes them again, old versions too. Shows how long each step takes. Warns of a
    bucket that keeps versions, locks objects or expires them. Exits with 1 if a check fails.
    """
    from stampede.addresses import shown
    from stampede.cli.running import running, settings_of
    from stampede.doctor.finding import Level
    from stampede.doctor.stores import bucket_findings
    from stampede.store.conformance import run_checks
    from stampede.store.open import open_objects
    from stampede.store.s3.bucket import S3Objects
    from stampede.store.step_times import measure_steps

    settings = settings_of(running(data))
    bucket = open_objects(settings)
    if history:
        _show_history(bucket)
        return
    if not isinstance(bucket, S3Objects):
        raise SetupError(
            f"{shown(settings.store)} is not an S3 endpoint: there is nothing to check"
        )
    bucket.ensure_bucket()
    failed = 0
    for name, fault in run_checks(bucket):
        failed += fault is not None
        typer.echo(f"{name}: {fault or 'ok'}")
    typer.echo(f"times of requests, p50/p99: {_shown(measure_steps(bucket))}")
    for finding in bucket_findings(bucket, "the store"):
        typer.echo(f"{finding.level.upper()}: {finding.fault}\n   to mend it: {finding.repair}")
        failed += finding.level is Level.ERROR
    sys.exit(1 if failed else 0)


def _show_history(home: "Objects") -> None:
    """A line for each check, and one for what is usual."""
    from stampede.store.store_checks import load_all

    found = False
    for site, checks in load_all(home):
        found = True
        for check in checks.checks:
            typer.echo(f"{site} {check.at:%Y-%m-%d %H:%M} {_shown(check.steps)}")
        if usual := checks.usual(home.now()):
            typer.echo(f"{site} usual            {_shown(usual)}")
    if not found:
        typer.echo("no check is known: `reconcile` makes one each hour", err=True)


def _shown(steps: Mapping[str, "StepTimes"]) -> str:
    return ", ".join(
        f"{step} {1000 * times.p50:.1f}/{1000 * times.p99:.1f} ms" for step, times in steps.items()
    )
