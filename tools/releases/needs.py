"""Programs of Debian packages."""

import subprocess
import sys
from pathlib import Path


def need(package: str) -> None:
    """See that a program is installed; as root, install it. Exits if it is not."""
    if subprocess.run([Path(__file__).parents[1] / "need", package], stdout=sys.stderr).returncode:
        sys.exit(1)
