"""A release of the chart: installed by helm, seen by kubectl, used from its toolbox."""

import base64
import time
from pathlib import Path
from typing import Any

import yaml

from e2e.commands import CommandResult, until
from e2e.on_cluster.kubernetes import Cluster, retry_if_overloaded, retry_if_silent
from e2e.places import ROOT

CHART = ROOT / "charts" / "stampede"
INSTALL_SECONDS = 400
ALL_KINDS = (
    "services.serving.knative.dev,revisions.serving.knative.dev,brokers,triggers,pingsources,"
    "sinkbindings,deployments,statefulsets,jobs,pods,services,secrets,configmaps,"
    "serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets"
)


class Release:
    """A release of the chart in a namespace of the same name."""

    def __init__(self, cluster: Cluster, name: str, values: str) -> None:
        self.cluster, self.name = cluster, name
        self.values = Path(__file__).with_name(values)
        self._set: dict[str, object] = {}

    # -- helm

    def install(
        self, *, chart: Path = CHART, values_file: Path | None = None, **values: object
    ) -> None:
        """Install or upgrade with values (``a__b`` is ``a.b``), and wait until all is ready.

        Values of earlier calls stay set, until one is None, but not those of a `values_file`.
        Another chart may know fewer values.
        """
        files = ("--values", values_file) if values_file else ()
        self._set |= {key.replace("__", "."): value for key, value in values.items()}
        self._set = {key: value for key, value in self._set.items() if value is not None}
        line = (
            *("upgrade", "--install", self.name, chart, "--namespace", self.name),
            *("--values", self.values, *files, "--wait", "--timeout", "6m", *self._sets()),
            *(() if chart == CHART else ("--skip-schema-validation",)),
        )
        retry_if_overloaded(lambda: self.cluster.helm(*line, seconds=INSTALL_SECONDS))
        self.wait_until_ready()

    def rendered(self, template: str, *options: str) -> list[dict[str, Any]]:
        """What a template of the chart makes of the values that are set, and of others."""
        node, *_ = self.cluster.get("nodes", "default")
        line = (
            *("template", self.name, CHART, "--namespace", self.name, "--values", self.values),
            *("--kube-version", node["status"]["nodeInfo"]["kubeletVersion"]),
            *("--set", "eventKey.value=not-of-this-cluster", *self._sets(), *options),
            *("--show-only", f"templates/{template}.yaml"),
        )
        found = yaml.safe_load_all(self.cluster.helm(*line).output)
        return [each for each in found if each]

    def _sets(self) -> list[str]:
        """The values that are set, as options of helm."""
        return [word for key, value in self._set.items() for word in ("--set", f"{key}={value}")]

    def uninstall(self, *options: str, check: bool = True) -> None:
        """Uninstall the release."""
        line = ("uninstall", self.name, "--namespace", self.name, "--wait", *options)
        self.cluster.helm(*line, seconds=INSTALL_SECONDS, check=check)

    # -- kubectl

    def kubectl(self, *arguments: object, **more: Any) -> CommandResult:
        """Run kubectl in the release's namespace."""
        return self.cluster.kubectl("--namespace", self.name, *arguments, **more)

    def get(self, kind: str, *more: str) -> list[dict[str, Any]]:
        """Objects in the release's namespace."""
        return self.cluster.get(kind, self.name, *more)

    def secret(self, name: str) -> dict[str, str]:
        """The keys of a Secret in the release's namespace."""
        (found,) = self.get("secrets", name)
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    def wait_until_ready(self, seconds: float = 240) -> None:
        """Wait until every function, Trigger and source is ready."""
        kinds = "services.serving.knative.dev,brokers,triggers,pingsources,sinkbindings"
        own = ("--selector", "!serving.knative.dev/revision")  # Knative scales the others
        until(
            lambda: not (self.not_ready(kinds) or self.not_ready("deployments", *own)), seconds, 1
        )

    def not_ready(self, kinds: str, *more: str) -> list[str]:
        """Names of objects that are not ready in their current generation."""
        return [
            f"{each['kind']} {each['metadata']['name']}"
            for each in self.get(kinds, *more)
            if not is_ready(each)
        ]

    def pods(self, function: str) -> list[dict[str, Any]]:
        """Pods of a function, running or starting."""
        return self.live_pods(f"serving.knative.dev/service={self.name}-{function}")

    def live_pods(self, selector: str) -> list[dict[str, Any]]:
        """Pods that are not being deleted."""
        return [
            pod
            for pod in self.get("pods", "--selector", selector)
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def kill(self, pod: str) -> None:
        """Kill a pod as `kill -9` does: without a signal before, or time to drain."""
        now = ("--grace-period=0", "--force", "--wait=false", "--ignore-not-found")
        self.kubectl("delete", "pod", pod, *now, check=False)

    def image(self) -> str:
        """Name and tag of the functions' image on the cluster."""
        (toolbox,) = self.get("deployments", f"{self.name}-toolbox")
        return toolbox["spec"]["template"]["spec"]["containers"][0]["image"]

    def remaining(self) -> list[str]:
        """Names of objects of the release that exist."""
        label = f"app.kubernetes.io/instance={self.name}"
        return [
            f"{each['kind']} {each['metadata']['name']}"
            for each in self.get(ALL_KINDS, "--selector", label)
        ]

    def url(self, function: str) -> str:
        """URL of a function."""
        (service,) = self.get("services.serving.knative.dev", f"{self.name}-{function}")
        return service["status"]["url"]

    def report(self) -> str:
        """All pods, and the last log lines of those that alerts pass through."""
        lines = [self.kubectl("get", "pods", check=False).output]
        for component in ("source", "cutouts", "lightcurves"):
            label = f"app.kubernetes.io/component={component}"
            tail = ("--all-containers", "--prefix", "--tail=6")
            log = self.kubectl("logs", "--selector", label, *tail, check=False).output
            lines += [line[:400] for line in log.splitlines() if "/queue-proxy" not in line]
        return "\n".join(lines)

    # -- the chart's toolbox

    def stampede(self, *arguments: object, **more: Any) -> CommandResult:
        """Run a command of `stampede` that prints something in the toolbox."""
        return retry_if_silent(lambda: self.in_toolbox("stampede", *arguments, **more))

    def in_toolbox(self, *line: object, **more: Any) -> CommandResult:
        """Run a command in the toolbox."""
        toolbox = f"deployment/{self.name}-toolbox"
        stdin = ["--stdin"] if more.get("stdin") else []
        return self.kubectl("exec", *stdin, toolbox, "--", *line, **more)

    def python(self, code: str, stdin: bytes = b"", **more: Any) -> str:
        """Run Python code in the toolbox; its standard output."""
        return self.in_toolbox("python3", "-c", code, stdin=stdin, **more).output

    def wait_until_stored(self, *arguments: str, seconds: float = 400) -> CommandResult:
        """Wait until `stampede audit` finds nothing missing or in flight.

        A source waits up to 300 s for a response. Pods that have scaled out may slow an audit down.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            audit = self.stampede("audit", *arguments, check=False, seconds=max(left, 120))
            if not audit.status and "in flight" not in audit.output:
                break
            time.sleep(2)
        else:
            raise AssertionError(f"{self.report()}\n{audit.output[-1000:]}")
        assert "nothing is missing" in audit.output, audit.output[-500:]
        return audit


def is_ready(each: dict[str, Any]) -> bool:
    """Whether an object's status is of its current generation and has the condition Ready.

    A Deployment has another condition: all of its pods are new and ready. The status of KEDA's
    objects does not tell its generation.
    """
    status = each.get("status", {})
    if each["kind"] == "Deployment":
        wanted = each["spec"]["replicas"]
        counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")]
        return status.get("observedGeneration") == each["metadata"]["generation"] and (
            counts == 3 * [wanted]
        )
    ready = [c["status"] for c in status.get("conditions", []) if c["type"] == "Ready"]
    generation = each["metadata"]["generation"]
    return status.get("observedGeneration", generation) == generation and ready == ["True"]
