"""What an operator does on a cluster: kubectl, helm, and the functions by their URLs."""

import json
import os
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from e2e.cluster.choice import Cluster as Chosen
from e2e.user import ROOT, Ended, until

CHART = ROOT / "charts" / "stampede"
INSTALL_SECONDS = 400
# What the API server, or Knative's webhooks, say when they have no time.
BUSY = "failed calling webhook|etcdserver:|connection refused|timeout|deadline exceeded|Unavail"
EVERYTHING = (
    "services.serving.knative.dev,revisions.serving.knative.dev,brokers,triggers,pingsources,"
    "containersources,sinkbindings,deployments,jobs,pods,services,secrets,configmaps,"
    "serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets"
)


class Command:
    """A program with its environment; what it says is shown where a test fails."""

    def __init__(self, program: str, *begins: str, **env: str) -> None:
        self._line = [program, *begins]
        self._env = os.environ | env

    def __call__(
        self, *arguments: object, stdin: bytes | str = b"", seconds: float = 120, check: bool = True
    ) -> Ended:
        line = [*self._line, *map(str, arguments)]
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            line, input=data, capture_output=True, timeout=seconds, env=self._env, cwd=ROOT
        )
        said = (done.stdout + done.stderr).decode(errors="replace")
        ended = Ended(line, done.returncode, said)
        if check:
            ended.assert_done()
        return Ended(line, done.returncode, done.stdout.decode(errors="replace"))


def patiently(do: Callable[[], Ended]) -> Ended:
    """Do it again where the cluster is too busy to be asked, as an operator would.

    Two cores with all of this on them can bring that about.
    """
    for _ in range(2):
        try:
            return do()
        except AssertionError as error:
            if not re.search(BUSY, str(error)):
                raise
            print(error)
            time.sleep(5)
    return do()


class Cluster:
    """A cluster with Knative, told by kubectl and helm."""

    def __init__(self, chosen: Chosen, helm: Path) -> None:
        self.chosen = chosen
        self.ingress = chosen.ingress
        self.kubectl = Command(str(chosen.kubectl), KUBECONFIG=str(chosen.kubeconfig))
        self.helm = Command(str(helm), KUBECONFIG=str(chosen.kubeconfig))

    def get(self, kind: str, namespace: str, *more: str) -> list[dict[str, Any]]:
        """Objects of a kind."""
        line = ("get", kind, "--namespace", namespace, "--output", "json", *more)
        said = patiently(lambda: self.kubectl(*line))
        found = json.loads(said.said)
        return found["items"] if found["kind"] == "List" else [found]

    def open_urls(self) -> None:
        """Send this process's requests for a function's URL to the ingress, as DNS would."""
        ingress = self.ingress

        class Ingress(urllib.request.HTTPHandler):
            def http_open(self, request: urllib.request.Request) -> Any:
                if request.host.partition(":")[0] in ("127.0.0.1", "localhost"):
                    return super().http_open(request)
                return self.do_open(lambda _, **more: HTTPConnection(ingress, **more), request)

        urllib.request.install_opener(urllib.request.build_opener(Ingress))


class Release:
    """A release of the chart in a namespace of its name."""

    def __init__(self, cluster: Cluster, name: str, values: str) -> None:
        self.cluster, self.name = cluster, name
        self._values = Path(__file__).with_name(values)
        self._set: dict[str, object] = {}

    # -- what helm does

    def install(self, **values: object) -> None:
        """Install, or upgrade to other values (``a__b`` is ``a.b``), and wait until all is ready.

        Values that were set stay set.
        """
        self._set |= {key.replace("__", "."): value for key, value in values.items()}
        sets = [word for key, value in self._set.items() for word in ("--set", f"{key}={value}")]
        line = (
            *("upgrade", "--install", self.name, CHART, "--namespace", self.name),
            *("--values", self._values, "--wait", "--timeout", "6m", *sets),
        )
        patiently(lambda: self.cluster.helm(*line, seconds=INSTALL_SECONDS))
        self.wait_until_ready()

    def uninstall(self) -> None:
        """Take it away."""
        self.cluster.helm(
            "uninstall", self.name, "--namespace", self.name, "--wait", seconds=INSTALL_SECONDS
        )

    # -- what kubectl shows

    def kubectl(self, *arguments: object, **more: Any) -> Ended:
        """In the release's namespace."""
        return self.cluster.kubectl("--namespace", self.name, *arguments, **more)

    def get(self, kind: str, *more: str) -> list[dict[str, Any]]:
        """Objects in the release's namespace."""
        return self.cluster.get(kind, self.name, *more)

    def wait_until_ready(self, seconds: float = 240) -> None:
        """Until every function, Trigger and source says so."""
        kinds = "services.serving.knative.dev,brokers,triggers,pingsources,containersources"
        until(lambda: not self.unready(kinds), seconds, 1)

    def unready(self, kinds: str) -> list[str]:
        """Names of what is not ready, or not as last asked for."""
        return [
            f"{each['kind']} {each['metadata']['name']}"
            for each in self.get(kinds)
            if not is_ready(each)
        ]

    def pods(self, function: str) -> list[dict[str, Any]]:
        """Pods of a function that run, or are about to."""
        return self.alive(f"serving.knative.dev/service={self.name}-{function}")

    def alive(self, selector: str) -> list[dict[str, Any]]:
        """Pods that nobody has told to go."""
        return [
            pod
            for pod in self.get("pods", "--selector", selector)
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def left(self) -> list[str]:
        """What there still is of it."""
        label = f"app.kubernetes.io/instance={self.name}"
        return [
            f"{each['kind']} {each['metadata']['name']}"
            for each in self.get(EVERYTHING, "--selector", label)
        ]

    def url(self, function: str) -> str:
        """Where a function answers."""
        (service,) = self.get("services.serving.knative.dev", f"{self.name}-{function}")
        return service["status"]["url"]

    def account(self) -> str:
        """What there is, and the last words of those that alerts go through."""
        words = [self.kubectl("get", "pods", check=False).said]
        for component in ("source", "cutouts", "lightcurves"):
            label = f"app.kubernetes.io/component={component}"
            tail = ("--all-containers", "--prefix", "--tail=6")
            said = self.kubectl("logs", "--selector", label, *tail, check=False).said
            words += [line[:400] for line in said.splitlines() if "/queue-proxy" not in line]
        return "\n".join(words)

    # -- what the command line does, in the chart's own toolbox

    def stampede(self, *arguments: object, **more: Any) -> Ended:
        """Run `stampede` in the toolbox."""
        return self.tool("stampede", *arguments, **more)

    def tool(self, *line: object, **more: Any) -> Ended:
        """Run something in the toolbox."""
        toolbox = f"deployment/{self.name}-toolbox"
        stdin = ["--stdin"] if more.get("stdin") else []
        return self.kubectl("exec", *stdin, toolbox, "--", *line, **more)

    def python(self, code: str, stdin: bytes = b"", **more: Any) -> str:
        """Run a few lines of Python in the toolbox."""
        return self.tool("python3", "-c", code, stdin=stdin, **more).said

    def wait_until_stored(self, *arguments: str, seconds: float = 400) -> Ended:
        """Until `stampede audit` finds nothing missing; a source waits 300 s for an answer."""
        deadline = time.monotonic() + seconds
        while (audit := self.stampede("audit", *arguments, check=False)).status:
            assert time.monotonic() < deadline, f"{self.account()}\n{audit.said[-1000:]}"
            time.sleep(2)
        assert "nothing is missing" in audit.said, audit.said[-500:]
        return audit


def is_ready(each: dict[str, Any]) -> bool:
    """Whether an object's status is about what is asked for now, and says that it is ready."""
    status = each.get("status", {})
    ready = [c["status"] for c in status.get("conditions", []) if c["type"] == "Ready"]
    current = status.get("observedGeneration") == each["metadata"]["generation"]
    return current and ready == ["True"]


class Asked(NamedTuple):
    """How requests in a row went: seconds that each took, and what went wrong."""

    seconds: list[float]
    wrong: list[str]


@contextmanager
def asking(ask: Callable[[], object], pause: float = 0.02) -> Iterator[Asked]:
    """Ask again and again in the background."""
    asked, stop = Asked([], []), threading.Event()

    def run() -> None:
        while not stop.is_set():
            begin = time.monotonic()
            try:
                ask()
            except Exception as error:
                asked.wrong.append(repr(error)[:200])
            asked.seconds.append(time.monotonic() - begin)
            stop.wait(pause)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        stop.set()
        thread.join(60)
