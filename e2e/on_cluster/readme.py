"""The commands of docs/cluster.md, the page about a cluster."""

import re
import shlex

from e2e.commands import CommandResult
from e2e.on_cluster.kubernetes import Cluster, retry_if_silent
from e2e.places import ROOT

COMMANDS = re.findall(r"^\$ (.+)$", (ROOT / "docs" / "cluster.md").read_text(), re.MULTILINE)
assert COMMANDS
ran: set[str] = set()


def run(cluster: Cluster, begins: str, seconds: float = 300) -> CommandResult:
    """Run the one command of the page that begins with this text."""
    (line,) = [command for command in COMMANDS if command.startswith(begins)]
    ran.add(line)
    program, *words = shlex.split(line)
    run_program = {"helm": cluster.helm, "kubectl": cluster.kubectl}[program]
    return retry_if_silent(lambda: run_program(*words, seconds=seconds))
