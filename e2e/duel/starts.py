"""When a pod was created, scheduled, started and ready, to the moment that kubectl says so.

Kubernetes' own times are whole seconds. So each line of `kubectl get --watch` is stamped here.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Self

from e2e.on_cluster.release import Release

STAGES = ("created", "scheduled", "sandbox", "started", "ready")
BEGIN_SECONDS = 20.0
_CONDITIONS = {
    "PodScheduled": "scheduled",
    "PodReadyToStartContainers": "sandbox",
    "Ready": "ready",
}
# No tabs: kubectl aligns them with spaces. Its jsonpath ends at a range of nothing.
_COLUMNS = (
    "{{.metadata.name}}|"
    '{{range .status.conditions}}{{if eq .status "True"}}{{.type}} {{end}}{{end}}|'
    "{{range .spec.containers}}{{.name}} {{end}}|"
    "{{range .status.containerStatuses}}{{with .state.running}}{{.startedAt}} {{end}}{{end}}"
    r'{{"\n"}}'
)


class Starts:
    """Watches a release's pods while it is entered: the times (s, UNIX) of each pod's stages."""

    def __init__(self, release: Release) -> None:
        self._line = (
            *("--namespace", release.name, "get", "pods", "--watch"),
            f"--output=go-template={_COLUMNS}",
        )
        self._cluster = release.cluster
        self._pods: dict[str, dict[str, float]] = {}
        self._lock, self._begun = threading.Lock(), threading.Event()

    def __enter__(self) -> Self:
        self._watch = self._cluster.kubectl.opened(*self._line)
        assert self._watch.stdout
        self._thread = threading.Thread(target=self.note, args=[self._watch.stdout], daemon=True)
        self._thread.start()
        self._begun.wait(BEGIN_SECONDS)  # the toolbox is always there
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.terminate()
        self._watch.wait()
        self._thread.join()

    def note(self, lines: Iterable[str], clock: Callable[[], float] = time.time) -> None:
        """Stamp what the lines of `kubectl` say for the first time."""
        for line in lines:
            now = clock()
            name, conditions, containers, started = line.rstrip("\n").split("|")
            stages = ["created", *(_CONDITIONS.get(word, "") for word in conditions.split())]
            if len(started.split()) == len(containers.split()):
                stages.append("started")
            with self._lock:
                pod = self._pods.setdefault(name, {})
                for stage in filter(None, stages):
                    pod.setdefault(stage, now)
            self._begun.set()

    def first_after(self, begin: float, belongs: Callable[[str], bool]) -> dict[str, float]:
        """Seconds from `begin` to each stage of the first pod that was created since.

        Empty if there is none; a stage that was not seen is left out.
        """
        with self._lock:
            pods = [
                dict(stages)
                for name, stages in self._pods.items()
                if belongs(name) and stages["created"] > begin
            ]
        if not pods:
            return {}
        first = min(pods, key=lambda stages: stages["created"])
        return {stage: first[stage] - begin for stage in STAGES if stage in first}
