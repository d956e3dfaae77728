"""Knative's ConfigMaps: version, features, timeouts and scaling, against what functions need."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stampede.doctor.finding import Finding, error, warning
from stampede.doctor.kubernetes import Document

OLDEST = (1, 20)
"""The oldest version of Serving and Eventing that is supported."""
LONGEST_TIMEOUT = 600
"""Serving's own, where config-defaults has none."""
IDLE_SECONDS = 600.0
"""The interval of `reconcile` and `scrub`: if idle pods stay for longer, theirs never end."""
# Fields of pods that Serving allows only with the feature `kubernetes.podspec-FIELD`.
FIELDS = (
    *("priorityClassName", "nodeSelector", "tolerations", "affinity"),
    "topologySpreadConstraints",
)
EMPTY_DIR = "kubernetes.podspec-volumes-emptydir"  # the one that is enabled by default
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Configuration(NamedTuple):
    """A ConfigMap of Knative."""

    name: str
    namespace: str
    data: Mapping[str, str]
    version: str

    def feature(self, name: str, default: str = "disabled") -> bool:
        """Whether a feature is enabled or allowed."""
        return self.data.get(name, default).lower() != "disabled"

    def patch(self, data: Mapping[str, str]) -> str:
        """The command that changes it."""
        return (
            f"`kubectl patch configmap {self.name} --namespace {self.namespace} --type merge "
            f"--patch '{json.dumps({'data': dict(data)})}'`"
        )


def too_old(name: str, found: Configuration) -> Iterator[Finding]:
    """A version that is not supported."""
    # One that is built from its sources is called `devel`.
    if (version := re.match(r"v?(\d+)\.(\d+)", found.version)) is None:
        return
    if (int(version[1]), int(version[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        yield error(
            f"Knative {name} is version {found.version}, older than {oldest}",
            f"upgrade it, one minor version after the other, to {oldest} or later",
        )


def features(found: Configuration, services: list[Document]) -> Iterator[Finding]:
    """Features that fields of the functions need, and that are disabled."""
    users: dict[str, list[str]] = {}
    for service in services:
        pod = _pod(service)
        used = {f"kubernetes.podspec-{field.lower()}" for field in FIELDS if pod.get(field)}
        if any("emptyDir" in volume for volume in pod.get("volumes") or ()):
            used.add(EMPTY_DIR)
        for feature in used:
            users.setdefault(feature, []).append(service["metadata"]["name"])
    for feature, names in sorted(users.items()):
        if not found.feature(feature, "enabled" if feature == EMPTY_DIR else "disabled"):
            yield error(
                f"{', '.join(names)} cannot be changed or installed anew: Serving's feature "
                f"{feature} is disabled",
                found.patch({feature: "enabled"}),
            )


def timeouts(defaults: Configuration, services: list[Document]) -> Iterator[Finding]:
    """Timeouts of functions beyond the longest that Serving allows."""
    longest = int(defaults.data.get("max-revision-timeout-seconds", LONGEST_TIMEOUT))
    timeouts = {
        each["metadata"]["name"]: int(_pod(each).get("timeoutSeconds") or 0) for each in services
    }
    too_long = {name: seconds for name, seconds in timeouts.items() if seconds > longest}
    for name, seconds in too_long.items():
        wanted = str(max(too_long.values()))
        yield error(
            f"{name} has timeoutSeconds {seconds}, and Serving allows {longest}: it cannot be "
            "changed or installed anew",
            f"{defaults.patch({'max-revision-timeout-seconds': wanted})}, and give Serving's "
            f"Deployment activator as many terminationGracePeriodSeconds",
        )


def scaling(autoscaler: Configuration) -> Iterator[Finding]:
    """Settings that keep idle functions running."""
    if autoscaler.data.get("enable-scale-to-zero", "true").lower() == "false":
        yield warning(
            "Serving scales nothing to zero (enable-scale-to-zero is false): each function keeps a "
            "pod",
            autoscaler.patch({"enable-scale-to-zero": "true"}),
        )
    for name in ("scale-to-zero-grace-period", "scale-to-zero-pod-retention-period"):
        seconds = _seconds(autoscaler.data.get(name, ""))
        if seconds > IDLE_SECONDS:
            yield warning(
                f"Serving keeps idle pods for {seconds:.0f} s ({name}): a function with a timer "
                "may never scale to zero",
                autoscaler.patch({name: "30s"}),
            )


def tokens(eventing: Configuration, services: list[Document]) -> Iterator[Finding]:
    """Whether Eventing gives the tokens that `oidc.mode` wants."""
    variables = {
        (variable["name"], variable.get("value"))
        for service in services
        for container in _pod(service).get("containers") or ()
        for variable in container.get("env") or ()
    }
    if eventing.feature("authentication-oidc"):
        return
    repair = eventing.patch({"authentication-oidc": "enabled"})
    if ("STAMPEDE_SENDER_TOKENS_ONLY", "true") in variables:
        yield error(
            "oidc.mode is required, but Eventing's feature authentication-oidc is disabled: "
            "Triggers and timers have no token, and the functions refuse them",
            repair,
        )
    elif "STAMPEDE_SENDER_ISSUER" in {name for name, _ in variables}:
        yield warning(
            "oidc.mode is accepted, but Eventing's feature authentication-oidc is disabled: "
            "Triggers and timers still send the key",
            f"before oidc.mode=required: {repair}",
        )


def _pod(service: Document) -> Document:
    return ((service.get("spec") or {}).get("template") or {}).get("spec") or {}


def _seconds(duration: str) -> float:
    """A duration in Go's form, such as ``1h30m``; 0 if there is none."""
    return sum(float(n) * _UNITS[unit] for n, unit in re.findall(r"([\d.]+)(h|ms|m|s)", duration))
