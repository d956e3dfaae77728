"""The cluster as an operator uses it: kubectl, helm, and the functions' URLs."""

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from e2e.cluster.choice import Cluster as ClusterBackend
from e2e.commands import CommandResult
from e2e.places import ROOT

# Errors of an API server, or of Knative's webhooks, that are overloaded.
OVERLOADED = (
    "failed calling webhook|etcdserver:|connection refused|timeout|deadline exceeded|Unavail"
)


class Command:
    """A program with a kubeconfig. Its output is in the message of a failed test."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._program = str(program)
        self._env = os.environ | {"KUBECONFIG": str(kubeconfig)}

    def __call__(
        self, *arguments: object, stdin: bytes | str = b"", seconds: float = 120, check: bool = True
    ) -> CommandResult:
        """Run it; the output is only its standard output."""
        line = [self._program, *map(str, arguments)]
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            line, input=data, capture_output=True, timeout=seconds, env=self._env, cwd=ROOT
        )
        both = CommandResult(
            line, done.returncode, (done.stdout + done.stderr).decode(errors="replace")
        )
        if check:
            both.assert_succeeded()
        return CommandResult(line, done.returncode, done.stdout.decode(errors="replace"))


def retry_if_overloaded(do: Callable[[], CommandResult]) -> CommandResult:
    """Try up to three times while the cluster is overloaded, as an operator would.

    All of it on two cores can cause that.
    """
    for _ in range(2):
        try:
            return do()
        except AssertionError as error:
            if not re.search(OVERLOADED, str(error)):
                raise
            print(error)
            time.sleep(5)
    return do()


class Cluster:
    """A cluster with Knative, used by kubectl and helm."""

    def __init__(self, backend: ClusterBackend, helm: Path) -> None:
        self.backend = backend
        self.ingress = backend.ingress
        self.kubectl = Command(backend.kubectl, backend.kubeconfig)
        self.helm = Command(helm, backend.kubeconfig)

    def get(self, kind: str, namespace: str, *more: str) -> list[dict[str, Any]]:
        """Objects of a kind in a namespace."""
        line = ("get", kind, "--namespace", namespace, "--output", "json", *more)
        found = json.loads(retry_if_overloaded(lambda: self.kubectl(*line)).output)
        return found["items"] if found["kind"] == "List" else [found]

    def send_urls_to_ingress(self) -> None:
        """Send this process's requests for functions' URLs to the ingress, as DNS would."""
        ingress = self.ingress

        class Ingress(urllib.request.HTTPHandler):
            def http_open(self, request: urllib.request.Request) -> Any:
                if request.host.partition(":")[0] in ("127.0.0.1", "localhost"):
                    return super().http_open(request)
                return self.do_open(lambda _, **more: HTTPConnection(ingress, **more), request)

        urllib.request.install_opener(urllib.request.build_opener(Ingress))
