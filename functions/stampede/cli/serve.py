"""`stampede serve`: run one function."""

from typing import Annotated

import typer


def serve(
    name: Annotated[
        str,
        typer.Argument(
            help="cutouts, lightcurves, deadletters, thumbnails, replicate, compact, reconcile, "
            "scrub, read: a function; source, which sends Kafka's alerts to one; notifications, "
            "which sends the store's to the broker; or broker, which sends them to the functions"
        ),
    ],
) -> None:
    """Run one function (or the source) until a signal stops it; settings from the environment.

    SIGTERM and Ctrl-C drain it: it stops accepting, stores what it holds, answers, and exits.
    """
    from stampede.handlers.function_process import run_function

    run_function(name)
