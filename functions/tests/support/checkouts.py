"""Checkouts that tests make up."""

import sys
from pathlib import Path


def with_python(path: Path) -> None:
    """Make this Python that of a checkout's virtual environment."""
    python = path / ".venv/bin/python"
    python.parent.mkdir(parents=True, exist_ok=True)
    # A link would be this virtual environment no more.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
