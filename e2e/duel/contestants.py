"""The two ways to run `cutouts` and `lightcurves` of a release, and their sources."""

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
LAG = 600  # alerts for which KEDA adds a pod: what a function that reads Kafka has in flight
POLL_SECONDS = 2  # KEDA's default is 30
IDLE_SECONDS = 15  # until KEDA scales to zero; as this cluster's Knative
STOPPED_SECONDS = REST_SECONDS = 180.0
SOURCE = "duel"  # the one with the function in its pods


class Knative:
    """The release as it is: a source of one pod, and `least` to `most` pods of a function."""

    def __init__(self, release: Release, least: int = 0, most: int = MOST) -> None:
        self._release, self._least, self._most = release, least, most
        self.title = CONTESTANTS["zero" if not least else "one" if least == most else "kept"]

    def group_of(self, function: str) -> str:
        """Name of the consumer group, which is that of both functions."""
        return "stampede-alerts"

    def start(self, functions: Sequence[str] = FUNCTIONS) -> None:
        """Start the source, whichever functions are asked for: it feeds both."""
        self._scale(1)

    def stop(self) -> None:
        """Stop the source, and wait until the functions are at rest."""
        self._scale(0)
        until(self.at_rest, STOPPED_SECONDS, 1)

    def at_rest(self) -> bool:
        """Whether each function has as many pods as without events."""
        return all(len(self.pods(function)) == self._least for function in FUNCTIONS)

    def rest(self) -> None:
        """Wait until the functions are at rest."""
        until(self.at_rest, REST_SECONDS, 1)

    def wind_down(self) -> None:
        """Wait until the pods that came for a contest have gone."""
        self.rest()

    def prepare(self) -> None:
        """Set the least and the greatest number of pods."""
        self._annotate(f"min-scale={self._least}", f"max-scale={self._most}")

    def limit(self, most: int) -> None:
        """Set the greatest number of pods of a function."""
        self._annotate(f"max-scale={most}")

    def pods(self, function: str) -> list[dict[str, Any]]:
        """The pods of a function."""
        return self._release.pods(function)

    def source(self, function: str) -> str:
        """The selector of the pods of the source of both functions."""
        return "stampede/source=alerts"

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

    def _scale(self, number: int) -> None:
        name = f"{self._release.name}-alerts"
        patiently(self._release, "scale", f"deployment/{name}", f"--replicas={number}")
        selector = self.source(FUNCTIONS[0])
        until(lambda: len(self._release.live_pods(selector)) == number, STOPPED_SECONDS, 1)


class InPod:
    """A source whose pods store both tables, as the chart makes it, which KEDA scales on lag.

    It is rendered from the release's own values, and takes the place of its source.

    Parameters
    ----------
    installed
        Whether KEDA is there.
    least
        Least number of pods.
    scaled
        False for `least` pods, without KEDA.
    """

    def __init__(
        self, release: Release, topic: str, installed: bool, least: int = 0, scaled: bool = True
    ) -> None:
        self._release, self._topic, self._installed = release, topic, installed
        self._least, self._scaled = least, scaled
        self.title = CONTESTANTS[("keda-kept" if least else "keda") if scaled else "pod"]

    def group_of(self, function: str) -> str:
        """Name of the consumer group, which is that of both functions."""
        return SOURCE

    def prepare(self) -> None:
        """Nothing to do."""

    def limit(self, most: int) -> None:
        """Set the greatest number of pods, if KEDA scales them."""
        if not self._scaled:
            return
        change = json.dumps({"spec": {"maxReplicaCount": most}})
        name = f"scaledobjects.keda.sh/{self._name}"
        patiently(self._release, "patch", name, "--type=merge", f"--patch={change}")

    def start(self, functions: Sequence[str] = FUNCTIONS) -> None:
        """Make the Deployment and what scales it, whichever functions are asked for."""
        objects = [each for each in self._rendered() if each["metadata"]["name"] == self._name]
        for each in objects:
            if each["kind"] == "Deployment":
                each["spec"]["replicas"] = self._least
            else:  # the chart has one pod at least, so that KEDA's slow defaults do not matter
                each["spec"] |= {
                    "minReplicaCount": self._least,
                    "pollingInterval": POLL_SECONDS,
                    "cooldownPeriod": IDLE_SECONDS,
                }
        manifest = {"apiVersion": "v1", "kind": "List", "items": objects}
        patiently(self._release, *APPLY, "-", stdin=json.dumps(manifest))

    def stop(self) -> None:
        """Delete them."""
        kinds = "scaledobjects.keda.sh,deployments" if self._installed else "deployments"
        selector = self.source(FUNCTIONS[0])
        self._release.kubectl("delete", kinds, "--selector", selector, "--wait")
        until(lambda: not self.pods(FUNCTIONS[0]), STOPPED_SECONDS, 1)

    def at_rest(self) -> bool:
        """Whether there are as many pods as without events."""
        return len(self.pods(FUNCTIONS[0])) == self._least

    def wind_down(self) -> None:
        """Wait until the pods that came for a contest have gone; the chart keeps them for minutes.

        Then this does not wait.
        """
        if not self._least:
            self.rest()

    def rest(self) -> None:
        """Wait until the functions are at rest; pods that KEDA still keeps are made anew."""
        if self._least and not self.at_rest():
            self.stop()
            self.start()
        until(self.at_rest, REST_SECONDS, 1)

    def pods(self, function: str) -> list[dict[str, Any]]:
        """The pods that do the work of a function, which are those of both."""
        return self._release.live_pods(self.source(function))

    def source(self, function: str) -> str:
        """The selector of the pods of the source, which are those of both functions."""
        return f"stampede/source={SOURCE}"

    @property
    def _name(self) -> str:
        return f"{self._release.name}-{SOURCE}"

    def _rendered(self) -> list[dict[str, Any]]:
        """Deployments and ScaledObjects of the chart."""
        source = {
            "bootstrapServers": ["kafka.site.svc:9092"],
            "topics": [self._topic],
            "group": SOURCE,
            "functionInPod": True,
        }
        if self._scaled:
            source["autoscaling"] = {"max": MOST, "lag": LAG}
        added = ("--set-json", f"sources.{SOURCE}={json.dumps(source)}")
        # A topic is in one source only.
        return self._release.rendered("sources", "--set", "sources.alerts=null", *added)


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
