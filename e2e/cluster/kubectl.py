"""kubectl with the kubeconfig of one cluster."""

import json
from pathlib import Path
from typing import Any

from e2e.cluster.places import LOGS
from e2e.cluster.steps import run

# Followed by a file, or by - for the standard input.
APPLY = ("apply", "--server-side", "--force-conflicts", "--filename")


class Kubectl:
    """kubectl with the kubeconfig of one cluster."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._program, self._kubeconfig = program, kubeconfig

    def __str__(self) -> str:
        return f"{self._program} --kubeconfig={self._kubeconfig}"

    def __call__(self, *arguments: object, stdin: str = "") -> str:
        """Run kubectl; its standard output.

        Raises
        ------
        Failed
            Its status is not 0.
        """
        options = (f"--kubeconfig={self._kubeconfig}", "--request-timeout=60s")
        line = (self._program, *options, *arguments)
        return run(*line, log=LOGS / "kubectl.log", stdin=stdin.encode())

    def get(self, kinds: str) -> list[dict[str, Any]]:
        """All objects of these kinds, in all namespaces."""
        return json.loads(self("get", kinds, "--all-namespaces", "--output=json"))["items"]
