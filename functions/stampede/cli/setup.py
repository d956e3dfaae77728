"""`stampede setup`: prepare the store's bucket and its notifications."""

from typing import Annotated

import typer


def setup(
    remove: Annotated[
        bool, typer.Option("--remove", help="remove topic and notifications again; never data")
    ] = False,
) -> None:
    """Make the store notify Stampede of new objects: create bucket, topic and notifications.

    STAMPEDE_STORE is the bucket, STAMPEDE_NOTIFICATIONS the URL that is notified, where
    `stampede serve notifications` listens. With STAMPEDE_REPLICA the bucket of the second site is
    created too. What exists already stays unchanged.
    """
    from stampede.events.access import url_with_key
    from stampede.settings import Settings
    from stampede.store import bucket_notifications

    run = bucket_notifications.remove if remove else bucket_notifications.setup
    settings = Settings()
    url = url_with_key(settings.notifications, settings)
    run(settings.model_copy(update={"notifications": url}), typer.echo)
