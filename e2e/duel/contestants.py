"""The two ways to run `cutouts` and `lightcurves` of a release, and their sources."""

import copy
import json
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from e2e.cluster.kubectl import APPLY
from e2e.commands import until
from e2e.duel.plan import CONTESTANTS
from e2e.on_cluster.kubernetes import retry_if_overloaded
from e2e.on_cluster.release import Release

FUNCTIONS = ("cutouts", "lightcurves")
MOST = 3  # pods of a function
LAG = 300  # alerts for which KEDA adds a pod: what a source has in flight
POLL_SECONDS = 2  # KEDA's default is 30
IDLE_SECONDS = 15  # until KEDA scales to zero; as this cluster's Knative
STOPPED_SECONDS = 180
SOURCE_PORT = 8081


class Knative:
    """The release as it is: a source of one pod, and a Knative Service of at least `least` pods."""

    def __init__(self, release: Release, least: int = 0) -> None:
        self._release, self._least = release, least
        self.title = CONTESTANTS["kept" if least else "zero"]

    def group_of(self, function: str) -> str:
        """Name of the consumer group."""
        return f"stampede-alerts-{function}"

    def start(self, functions: Sequence[str] = FUNCTIONS) -> None:
        """Start the sources of functions."""
        self._scale(1, functions)

    def stop(self) -> None:
        """Stop the sources, and wait until the functions are at rest."""
        self._scale(0, FUNCTIONS)
        until(self.at_rest, STOPPED_SECONDS, 1)

    def at_rest(self) -> bool:
        """Whether each function has as many pods as without events."""
        return all(len(self.pods(function)) == self._least for function in FUNCTIONS)

    def prepare(self) -> None:
        """Set the least and the greatest number of pods."""
        self._annotate(f"min-scale={self._least}", f"max-scale={MOST}")

    def limit(self, most: int) -> None:
        """Set the greatest number of pods of a function."""
        self._annotate(f"max-scale={most}")

    def pods(self, function: str) -> list[dict[str, Any]]:
        """The pods of a function."""
        return self._release.pods(function)

    def source(self, function: str) -> str:
        """The selector of the pods of a function's source."""
        return f"stampede/source=alerts-{function}"

    def _annotate(self, *bounds: str) -> None:
        """Set bounds of the revisions that run: Knative follows them without new pods."""
        services = [f"{self._release.name}-{function}" for function in FUNCTIONS]
        for found in self._release.get("services.serving.knative.dev", *services):
            revision = found["status"]["latestReadyRevisionName"]
            patiently(
                self._release,
                *("annotate", "--overwrite", f"revisions.serving.knative.dev/{revision}"),
                *(f"autoscaling.knative.dev/{bound}" for bound in bounds),
            )

    def _scale(self, number: int, functions: Sequence[str]) -> None:
        for function in functions:
            name = f"{self._release.name}-alerts-{function}"
            patiently(self._release, "scale", f"deployment/{name}", f"--replicas={number}")
            selector = self.source(function)
            until(lambda s=selector: len(self._release.live_pods(s)) == number, STOPPED_SECONDS, 1)


class Keda:
    """Source and function in one pod, in a Deployment that KEDA scales on Kafka's lag from zero."""

    title = CONTESTANTS["keda"]

    def __init__(self, release: Release, topic: str, bootstrap: str, installed: bool) -> None:
        self._release, self._topic, self._bootstrap = release, topic, bootstrap
        self._installed = installed

    def group_of(self, function: str) -> str:
        """Name of the consumer group."""
        return f"duel-{function}"

    def prepare(self) -> None:
        """Nothing to do."""

    def limit(self, most: int) -> None:
        """Set the greatest number of pods of a function."""
        change = json.dumps({"spec": {"maxReplicaCount": most}})
        for function in FUNCTIONS:
            name = f"scaledobjects.keda.sh/duel-{function}"
            patiently(self._release, "patch", name, "--type=merge", f"--patch={change}")

    def start(self, functions: Sequence[str] = FUNCTIONS) -> None:
        """Make the Deployments and what scales them."""
        objects = [
            each for name in functions for each in (self._deployment(name), self._scaled(name))
        ]
        manifest = {"apiVersion": "v1", "kind": "List", "items": objects}
        patiently(self._release, *APPLY, "-", stdin=json.dumps(manifest))

    def stop(self) -> None:
        """Delete them."""
        kinds = "scaledobjects.keda.sh,deployments" if self._installed else "deployments"
        self._release.kubectl("delete", kinds, "--selector", "duel=keda", "--wait")
        until(self.at_rest, STOPPED_SECONDS, 1)

    def at_rest(self) -> bool:
        """Whether no pod exists."""
        return not any(map(self.pods, FUNCTIONS))

    def pods(self, function: str) -> list[dict[str, Any]]:
        """The pods of a function."""
        return self._release.live_pods(self.source(function))

    def source(self, function: str) -> str:
        """The selector of the pods of a function's source, which are those of the function."""
        return f"duel-function={function}"

    def _deployment(self, function: str) -> dict[str, Any]:
        """The containers of the Knative Service and of its source, side by side."""
        name = self._release.name
        (service,) = self._release.get("services.serving.knative.dev", f"{name}-{function}")
        (source,) = self._release.get("deployments", f"{name}-alerts-{function}")
        pod = copy.deepcopy(service["spec"]["template"]["spec"])
        beside = copy.deepcopy(source["spec"]["template"]["spec"])
        (server,), (sender,) = pod["containers"], beside["containers"]
        # Knative fills in the port of its own proxy.
        server["readinessProbe"] = {"httpGet": {"path": "/health/liveness", "port": 8080}}
        server["livenessProbe"]["httpGet"]["port"] = 8080
        server["startupProbe"] = server["readinessProbe"] | {
            "periodSeconds": 1,
            "failureThreshold": 60,
        }
        changed = {
            "STAMPEDE_SINK": "http://127.0.0.1:8080",
            "STAMPEDE_GROUP": self.group_of(function),
            "STAMPEDE_PORT": str(SOURCE_PORT),
        }
        kept = [each for each in sender["env"] if not each["name"].startswith("K_")]
        for each in kept:
            if each["name"] in changed:
                each["value"] = changed[each["name"]]
        missing = changed.keys() - {each["name"] for each in kept}
        sender["env"] = kept + [{"name": key, "value": changed[key]} for key in sorted(missing)]
        for probe in ("readinessProbe", "livenessProbe"):
            sender[probe]["httpGet"]["port"] = SOURCE_PORT
        sender["ports"] = []
        sender["volumeMounts"] = [
            each | {"name": f"source-{each['name']}"}
            for each in sender["volumeMounts"]
            if each["name"] != "kne-bundle-volume" and "oidc" not in each["name"]
        ]
        wanted = {each["name"] for each in sender["volumeMounts"]}
        volumes = [each | {"name": f"source-{each['name']}"} for each in beside["volumes"]]
        for key in ("containerConcurrency", "timeoutSeconds", "responseStartTimeoutSeconds"):
            pod.pop(key, None)
        pod["containers"] = [server, sender]
        pod["volumes"] = pod["volumes"] + [each for each in volumes if each["name"] in wanted]
        labels = {"duel": "keda", "duel-function": function}
        own = {"app.kubernetes.io/name": "stampede", "app.kubernetes.io/instance": name}
        component = {"app.kubernetes.io/component": "source"}  # as the NetworkPolicy names it
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": f"duel-{function}", "labels": labels},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels | own | component}, "spec": pod},
            },
        }

    def _scaled(self, function: str) -> dict[str, Any]:
        metadata = {
            "bootstrapServers": self._bootstrap,
            "consumerGroup": self.group_of(function),
            "topic": self._topic,
            "lagThreshold": str(LAG),
            "offsetResetPolicy": "earliest",
        }
        return {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": f"duel-{function}", "labels": {"duel": "keda"}},
            "spec": {
                "scaleTargetRef": {"name": f"duel-{function}"},
                "pollingInterval": POLL_SECONDS,
                "cooldownPeriod": IDLE_SECONDS,
                "minReplicaCount": 0,
                "maxReplicaCount": MOST,
                "triggers": [{"type": "kafka", "metadata": metadata}],
            },
        }


def patiently(release: Release, *words: object, **more: Any) -> None:
    """Run kubectl, again while the cluster is overloaded."""
    retry_if_overloaded(lambda: release.kubectl(*words, **more))


def skip(bootstrap: str, topic: str, group: str, partitions: int) -> None:
    """Set a group's offsets to the ends of a topic: what is stored is not sent again."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        ends = [
            TopicPartition(topic, each.partition, consumer.get_watermark_offsets(each, 30)[1])
            for each in places
        ]
        consumer.commit(offsets=ends, asynchronous=False)
    finally:
        consumer.close()
