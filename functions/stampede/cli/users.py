"""`stampede users`: users of the S3 endpoint with no more rights than one function needs."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stampede.cli.options import Data

if TYPE_CHECKING:
    from stampede.cli.running import Running
    from stampede.store.ceph.users import Keys

GATEWAY = "radosgw"
"""The process of a local Ceph that serves S3."""


def users(
    secrets: Annotated[
        str, typer.Option(help="what the names of the Secrets begin with: NAME-read and so on")
    ] = "stampede-s3",
    policy: Annotated[
        bool, typer.Option("--policy", help="only print the bucket policy, as JSON")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="remove the users again; never data")
    ] = False,
    data: Data = None,
) -> None:
    """Make a user of Ceph's RGW for each function that can do with few rights.

    `read` can only read; `cutouts`, `lightcurves`, `thumbnails` and `deadletters` can only add what
    each of them stores, and delete nothing. The rights are a policy of the bucket. All other
    functions need the keys of the bucket's owner, and so does this command. Its user needs a
    capability, which you can take back afterwards:

        radosgw-admin caps add --uid=OWNER --caps='users=*'

    For the Ceph of `stampede up` the message without it has the whole command.

    Prints a Secret for each, for `kubectl apply`:

        stampede users | kubectl --namespace stampede apply --filename -

    What exists already stays unchanged, so it can be repeated.
    """
    import json

    import yaml

    from stampede.cli.running import running, settings_of
    from stampede.store.ceph.users import S3Users
    from stampede.store.open import first_site

    system = running(data)
    made = S3Users(first_site(settings_of(system)), admin_of(system))

    def progress(line: str) -> None:
        typer.echo(line, err=True)

    if policy:
        typer.echo(json.dumps({"Statement": made.policy(made.owner())}, indent=2))
        return
    if remove:
        made.remove(progress)
        return
    documents = [as_secret(f"{secrets}-{role}", keys) for role, keys in made.make(progress).items()]
    typer.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)


def admin_of(system: Running | None) -> str:
    """How Ceph's command for users is called: that of a local Ceph needs its configuration."""
    from stampede.store.ceph.users import ADMIN

    if system and system.data and GATEWAY in system.logs:
        return f"{ADMIN} -c {quote(str(system.data / 'ceph' / 'ceph.conf'))}"
    return ADMIN


def as_secret(name: str, keys: Keys) -> dict[str, Any]:
    """The manifest of a Secret with a user's keys."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": {"access-key": keys.access_key, "secret-key": keys.secret_key},
    }
