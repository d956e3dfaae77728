"""The pods of one `stampede bench stress`: they wait for each other at the store.

What a pod has to say is an object of its own, ``stress-RUN/pods/INDEX/WHAT``:

- ``alive``: written anew every few seconds. A pod whose ``alive`` stays the same is lost.
- ``at-STEP``: it is ready for the step.
- ``begin-STEP``, by pod 0: when the step begins, in seconds since 1970.
- ``done-STEP``: its requests, by the wall clock, in JSON.
- ``finished``, or ``failed`` with the reason: the last object of a pod.

So one listing tells a pod of all others.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from stampede.errors import StampedeError
from stampede.store.objects.object_store import Objects
from stampede_bench.storage.client_requests import Done, Part
from stampede_bench.storage.stress_place import Place


class PodLost(StampedeError):
    """Another pod of the run has failed, fell silent, or did not come."""

    name = "pod-lost"


class Waits(NamedTuple):
    """How long the pods wait, in seconds.

    Attributes
    ----------
    beat
        From one ``alive`` to the next.
    silent
        A pod is lost if its ``alive`` stays the same for so long.
    others
        For the other pods to start, or to be ready for a step.
    poll
        Between two listings while waiting.
    begin
        From the time when all pods are ready for a step until it begins. They poll meanwhile.
    tidy
        Pod 0, before it deletes the objects: for the others to end. Less than a benchmark has after
        Ctrl-C, which is a minute.
    """

    beat: float = 5.0
    silent: float = 40.0
    others: float = 300.0
    poll: float = 0.5
    begin: float = 3.0
    tidy: float = 30.0


WAITS = Waits()


class Pods:
    """This pod among those of its run, from ``with`` until it ends.

    Every method raises `PodLost` if another pod is lost, and `StoreDown`.

    Parameters
    ----------
    prefix
        The prefix of the run, with a slash at its end.
    """

    def __init__(self, objects: Objects, prefix: str, place: Place, waits: Waits = WAITS) -> None:
        self.prefix, self.place = prefix, place
        self._objects, self._waits = objects, waits
        self._alive: dict[int, tuple[str, float]] = {}  # etag, and when this pod first saw it
        self._fault = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._beats = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        """Begin. Raises `StampedeError` if this index has begun before."""
        index = self.place.pod
        if index:  # write nothing before pod 0, as it deletes everything
            self._wait_for("alive", [0], "start")
        if any(index in pods for pods in self._look().values()):
            raise StampedeError(
                f"pod {index} of run {self.place.run} was started twice: start all pods anew with "
                "another name of the run"
            )
        self._write("alive", b"0")
        self._beats.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Tell the others that this pod ends, and why. Pod 0 waits until they have ended."""
        self._ended.set()
        self._beats.join()  # nothing may be written after the last object
        with suppress(StampedeError):  # an error that ends this pod is the one to report
            if error is None:
                self._write("finished", b"")
            else:
                self._write("failed", self._reason(error).encode())
        if self.place.pod == 0:
            self._wait_for_ends()

    def stopped(self) -> bool:
        """Whether another pod is lost, as far as this one knows: it makes no request."""
        return bool(self._fault)

    def wait_for_step(self, step: str) -> None:
        """Wait until all pods are ready for a step, then until the time when it begins.

        Raises `StampedeError` if this pod's clock differs from that of pod 0 by seconds.
        """
        self._write(f"at-{step}", b"")
        self._wait_for(f"at-{step}", range(self.place.pods), f"get ready for {step}")
        if self.place.pod == 0:
            begin = time.time() + self._waits.begin
            self._write(f"begin-{step}", repr(begin).encode())
        else:
            self._wait_for(f"begin-{step}", [0], f"begin {step}")
            begin = float(self._objects.get(self._key(0, f"begin-{step}")))
        left = begin - time.time()
        if not -self._waits.begin <= left <= 2 * self._waits.begin:
            raise StampedeError(
                f"{step} begins {left:.0f} s from now by the clock of pod 0, not within "
                f"{self._waits.begin:.0f} s: the nodes' clocks differ, or the store is very slow"
            )
        time.sleep(max(0.0, left))

    def exchange(self, step: str, part: Part) -> list[Part]:
        """Give this pod's requests of a step, and wait for those of all pods."""
        every = range(self.place.pods)
        self._write(f"done-{step}", json.dumps(part).encode())
        self._wait_for(f"done-{step}", every, f"finish {step}")
        return [_part(self._objects.get(self._key(index, f"done-{step}"))) for index in every]

    def _key(self, index: int, what: str) -> str:
        return f"{self.prefix}pods/{index}/{what}"

    def _write(self, what: str, data: bytes) -> None:
        self._objects.put(self._key(self.place.pod, what), data)

    def _wait_for(self, what: str, of: Iterable[int], verb: str) -> None:
        """Wait until these pods have written it; `verb` says to a reader what they did."""
        deadline = time.monotonic() + self._waits.others
        while True:
            missing = sorted({*of} - self._look()[what])
            if self._fault:
                raise PodLost(self._fault)
            if not missing:
                return
            if time.monotonic() > deadline:
                raise PodLost(
                    f"{_names(missing)} of {self.place.pods} did not {verb} within "
                    f"{self._waits.others:g} s{self._left_over(missing)}"
                )
            time.sleep(self._waits.poll)

    def _look(self) -> dict[str, set[int]]:
        """What there is, and of which pods. Notes a pod that has failed or fell silent."""
        with self._lock:
            found: dict[str, set[int]] = defaultdict(set)
            for info in self._objects.list(f"{self.prefix}pods/"):
                index, what = info.key.split("/")[-2:]
                found[what].add(int(index))
                if what == "alive" and self._alive.get(int(index), ("",))[0] != info.etag:
                    self._alive[int(index)] = info.etag, time.monotonic()
            if not self._fault:
                self._fault = self._fault_in(found)
            return found

    def _fault_in(self, found: Mapping[str, set[int]]) -> str:
        """Which other pod is lost, in a sentence; empty if none is."""
        if failed := sorted(found["failed"] - {self.place.pod}):
            return self._objects.get(self._key(failed[0], "failed")).decode()
        if silent := self._silent(found):
            return (
                f"{_names(silent)} of {self.place.pods} gave no sign of life for "
                f"{self._waits.silent:g} s{self._left_over(silent)}"
            )
        return ""

    def _silent(self, found: Mapping[str, set[int]]) -> list[int]:
        """The others that should be alive and are not."""
        since = time.monotonic() - self._waits.silent
        ended = found["finished"] | found["failed"] | {self.place.pod}
        return sorted(n for n, (_, seen) in self._alive.items() if seen < since and n not in ended)

    def _left_over(self, lost: Iterable[int]) -> str:
        """What to do if pod 0 is lost, which deletes the objects."""
        if 0 not in lost:
            return ""
        return f"; objects under {self.prefix} may be left: delete them"

    def _beat(self) -> None:
        number = 0
        while not self._ended.wait(self._waits.beat):
            number += 1
            # A store at its limit may fail a request. The others wait for several of these.
            with suppress(StampedeError):
                self._write("alive", str(number).encode())
                self._look()

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, PodLost):
            return error.message  # it names the pod that was lost first
        if isinstance(error, KeyboardInterrupt | GeneratorExit):
            return f"pod {self.place.pod} was ended"
        text = error.message if isinstance(error, StampedeError) else repr(error)
        return f"pod {self.place.pod} failed: {text}"

    def _wait_for_ends(self) -> None:
        """Wait until no other pod writes any more, as far as one can know."""
        deadline = time.monotonic() + self._waits.tidy
        with suppress(StampedeError):
            while time.monotonic() < deadline:
                found = self._look()
                ended = found["finished"] | found["failed"] | {0, *self._silent(found)}
                if found["alive"] <= ended:
                    return
                time.sleep(self._waits.poll)


def _names(indexes: list[int]) -> str:
    return f"pod{'s' if len(indexes) > 1 else ''} {', '.join(map(str, indexes))}"


def _part(data: bytes) -> Part:
    done, failures = json.loads(data)
    return Part([Done(*one) for one in done], failures)
