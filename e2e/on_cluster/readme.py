"""The commands of README.md that are about a cluster."""

import re
import shlex

from e2e.on_cluster.release import Cluster
from e2e.user import ROOT, Ended

_SECTION = re.search(r"## On a cluster\n.*?\n## ", (ROOT / "README.md").read_text(), re.DOTALL)
assert _SECTION
COMMANDS = re.findall(r"^\$ (.+)$", _SECTION[0], re.MULTILINE)
ran: set[str] = set()


def run(cluster: Cluster, begins: str, seconds: float = 300) -> Ended:
    """Run the one command that begins so, as it stands there."""
    (line,) = [command for command in COMMANDS if command.startswith(begins)]
    ran.add(line)
    program, *words = shlex.split(line)
    return {"helm": cluster.helm, "kubectl": cluster.kubectl}[program](*words, seconds=seconds)
