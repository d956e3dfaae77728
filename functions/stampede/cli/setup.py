"""`stampede setup`: prepare the store's bucket and its notifications."""

from typing import Annotated

import typer

from stampede.cli.options import Data


def setup(
    remove: Annotated[
        bool, typer.Option("--remove", help="remove topic and notifications again; never data")
    ] = False,
    data: Data = None,
) -> None:
    """Make the store notify Stampede of new objects: create bucket, topic and notifications.

    STAMPEDE_STORE is the bucket, or that of the running `stampede up`; STAMPEDE_NOTIFICATIONS is
    the URL that is notified, where `stampede serve notifications` listens. With STAMPEDE_REPLICA
    the bucket of the second site is created too. What exists already stays unchanged.
    """
    from stampede.cli.running import running, settings_of
    from stampede.events.auth.access import url_with_key
    from stampede.store.ceph import bucket_notifications

    run = bucket_notifications.remove if remove else bucket_notifications.setup
    settings = settings_of(running(data))
    url = url_with_key(settings.notifications, settings)
    run(settings.model_copy(update={"notifications": url}), typer.echo)
