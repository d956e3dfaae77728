"""`stampede check-store`: check that an S3 endpoint does what Stampede needs."""

import sys

import typer

from stampede.cli.options import Data
from stampede.errors import SetupError


def check_store(data: Data = None) -> None:
    """Check that the store's S3 endpoint does what Stampede needs.

    The store is that of the running `stampede up`, or STAMPEDE_STORE. Writes objects under a prefix
    of its own and deletes them again, old versions too. Warns of a bucket that keeps versions,
    locks objects or expires them. Exits with 1 if a check fails.
    """
    from stampede.addresses import shown
    from stampede.cli.running import running, settings_of
    from stampede.doctor.finding import Level
    from stampede.doctor.stores import bucket_findings
    from stampede.store.conformance import run_checks
    from stampede.store.open import open_objects
    from stampede.store.s3.bucket import S3Objects

    settings = settings_of(running(data))
    bucket = open_objects(settings)
    if not isinstance(bucket, S3Objects):
        raise SetupError(
            f"{shown(settings.store)} is not an S3 endpoint: there is nothing to check"
        )
    bucket.ensure_bucket()
    failed = 0
    for name, fault in run_checks(bucket):
        failed += fault is not None
        typer.echo(f"{name}: {fault or 'ok'}")
    for finding in bucket_findings(bucket, "the store"):
        typer.echo(f"{finding.level.upper()}: {finding.fault}\n   to mend it: {finding.repair}")
        failed += finding.level is Level.ERROR
    sys.exit(1 if failed else 0)
