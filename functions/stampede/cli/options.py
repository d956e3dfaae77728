"""Options that several commands share, and the consoles they print to."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.config.topics import Topics
from stampede.errors import SetupError

if TYPE_CHECKING:
    from rich.console import Console

DATA = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "stampede"
"""Where `stampede up` keeps its data unless it is told otherwise."""

Data = Annotated[
    Path | None,
    typer.Option(
        help="directory of `stampede up`: its Ceph, Kafka and logs. Without it commands find the "
        "`stampede up` that runs here",
        envvar="STAMPEDE_DATA",
        show_default="~/.local/share/stampede",
    ),
]


def results_console() -> Console:
    """Results go to stdout; 140 characters wide if stdout is not a terminal."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=140)


def progress_console() -> Console:
    """Progress goes to stderr, so that stdout has only results."""
    from rich.console import Console

    return Console(file=sys.stderr)


def parse_topics(text: str) -> Topics:
    """The comma-separated topics and families of an option. Raises `SetupError`."""
    try:
        return Topics.parse(text)
    except ValueError as error:
        raise SetupError(str(error)) from None
