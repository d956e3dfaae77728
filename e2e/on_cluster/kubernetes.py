"""The cluster as an operator uses it: kubectl, helm, and the functions' URLs."""

import json
import math
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
OVERLOADED_SECONDS = 180.0
RADOSGW_ADMIN = ("radosgw-admin", "-c", "/data/ceph.conf", "-n", "client.rgw")


class Command:
    """A program with a kubeconfig. Its output is in the message of a failed test."""

    def __init__(self, program: Path, kubeconfig: Path, **variables: str) -> None:
        self._program = str(program)
        self._env = os.environ | {"KUBECONFIG": str(kubeconfig)} | variables

    def __call__(
        self, *arguments: object, stdin: bytes | str = b"", seconds: float = 120, check: bool = True
    ) -> CommandResult:
        """Run it; the output is its standard output, and also the errors if it fails."""
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
        if done.returncode:
            return both
        return CommandResult(line, done.returncode, done.stdout.decode(errors="replace"))

    def opened(self, *arguments: object) -> "subprocess.Popen[str]":
        """Start it; its standard output is to be read."""
        line = [self._program, *map(str, arguments)]
        return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=self._env, cwd=ROOT)


def retry_if_overloaded(do: Callable[[], CommandResult]) -> CommandResult:
    """Try again while the cluster is overloaded, up to `OVERLOADED_SECONDS` after the first error.

    An operator would do the same. All of it on two cores can cause that; a webhook that starts
    again takes a minute until it answers.
    """
    deadline = math.inf
    while True:
        try:
            return do()
        except AssertionError as error:
            now = time.monotonic()
            if now > deadline or not re.search(OVERLOADED, str(error)):
                raise
            deadline = min(deadline, now + OVERLOADED_SECONDS)
            print(error)
            time.sleep(5)


def retry_if_silent(do: Callable[[], CommandResult]) -> CommandResult:
    """Run a command that prints something; again, twice, if it ends well without a word.

    `kubectl exec` can lose what a program wrote just before its end, and its status is 0 when the
    connection breaks (kubernetes/kubernetes#124571, kubernetes/kubernetes#137404).
    """
    for _ in range(2):
        result = do()
        if result.status or result.output:
            return result
        print(f"kubectl lost the output, try again: {result.report()}")
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

    def radosgw_admin(self, *words: object) -> CommandResult:
        """Run `radosgw-admin` in the pod of the first site's Ceph."""
        at = ("--namespace", "site", "exec", "statefulset/ceph", "--container", "ceph", "--")
        return self.kubectl(*at, *RADOSGW_ADMIN, *words)

    def send_urls_to_ingress(self) -> None:
        """Send this process's requests for functions' URLs to the ingress, as DNS would."""
        ingress = self.ingress

        class Ingress(urllib.request.HTTPHandler):
            def http_open(self, request: urllib.request.Request) -> Any:
                if request.host.partition(":")[0] in ("127.0.0.1", "localhost"):
                    return super().http_open(request)
                return self.do_open(lambda _, **more: HTTPConnection(ingress, **more), request)

        urllib.request.install_opener(urllib.request.build_opener(Ingress))
