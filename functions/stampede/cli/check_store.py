"""`stampede check-store`: check that an S3 endpoint does what Stampede needs."""

import sys

import typer

from stampede.errors import SetupError


def check_store() -> None:
    """Check that the S3 endpoint of STAMPEDE_STORE does what Stampede needs.

    Writes objects under a prefix of its own and deletes them again. Exits with 1 if a check fails.
    """
    from stampede.settings import Settings
    from stampede.store.conformance import run_checks
    from stampede.store.open import open_objects
    from stampede.store.s3 import S3Objects

    settings = Settings()
    bucket = open_objects(settings)
    if not isinstance(bucket, S3Objects):
        raise SetupError(f"{settings.store} is not an S3 endpoint: there is nothing to check")
    bucket.ensure_bucket()
    failed = 0
    for name, fault in run_checks(bucket):
        failed += fault is not None
        typer.echo(f"{name}: {fault or 'ok'}")
    sys.exit(1 if failed else 0)
