"""The commands in the README's section about a cluster."""

import re
import shlex

from e2e.commands import CommandResult
from e2e.on_cluster.kubernetes import Cluster, retry_if_silent
from e2e.places import ROOT

_SECTION = re.search(r"## On a cluster\n.*?\n## ", (ROOT / "README.md").read_text(), re.DOTALL)
assert _SECTION
COMMANDS = re.findall(r"^\$ (.+)$", _SECTION[0], re.MULTILINE)
ran: set[str] = set()


def run(cluster: Cluster, begins: str, seconds: float = 300) -> CommandResult:
    """Run the one command of the README that begins with this text."""
    (line,) = [command for command in COMMANDS if command.startswith(begins)]
    ran.add(line)
    program, *words = shlex.split(line)
    run_program = {"helm": cluster.helm, "kubectl": cluster.kubectl}[program]
    return retry_if_silent(lambda: run_program(*words, seconds=seconds))
