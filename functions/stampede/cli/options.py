"""What several commands share: options, and the consoles they print to."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

DATA = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "stampede"
"""Where `stampede up` keeps its data, and writes how to reach it."""

Data = Annotated[
    Path, typer.Option(help="directory of the local Ceph and Kafka, logs, and what is running")
]


def results_console() -> "Console":
    """Results go to stdout, wide enough where it is no terminal."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=140)


def progress_console() -> "Console":
    """Progress goes to stderr, so that stdout has only results."""
    from rich.console import Console

    return Console(file=sys.stderr)
