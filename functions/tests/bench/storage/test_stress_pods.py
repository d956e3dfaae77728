"""Pods of a run as threads, with a store in memory in common."""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from stampede.errors import StampedeError
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede_bench.storage.client_requests import Done, Part
from stampede_bench.storage.stress_place import Place
from stampede_bench.storage.stress_pods import PodLost, Pods, Waits
from tests.support.store.watched_objects import Changed, Forwarding

SHORT = Waits(beat=0.1, silent=2.0, others=20.0, poll=0.02, begin=1.0, tidy=20.0)
PREFIX = "stress-a/"


def run(
    objects: Objects,
    pods: int,
    work: Callable[[Pods], object],
    only: Iterable[int] | None = None,
    waits: Waits = SHORT,
) -> dict[int, object]:
    """What `work` returns or raises in each pod, or in `only` some of them."""

    def one(pod: int) -> object:
        try:
            with Pods(objects, PREFIX, Place(pod, pods, "a"), waits) as member:
                return work(member)
        except BaseException as error:
            return error

    chosen = [*range(pods)] if only is None else [*only]
    with ThreadPoolExecutor(len(chosen)) as pool:
        return dict(zip(chosen, pool.map(one, chosen), strict=True))


class Killed(Forwarding):
    """Loses the writes of a pod once `dead`, as if it had been killed."""

    def __init__(self, inner: Objects, pod: int) -> None:
        super().__init__(inner)
        self.pod, self.dead = pod, threading.Event()

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        if not (self.dead.is_set() and key.startswith(f"{PREFIX}pods/{self.pod}/")):
            super().put(key, data)


def begin(member: Pods) -> None:
    member.wait_for_step("1-PUT")


@pytest.mark.parametrize("pods", [2, 8])
def test_all_pods_begin_a_step_at_once_and_get_the_requests_of_all(pods: int) -> None:
    objects = MemoryObjects()
    ready = [0.0] * pods
    begun = [0.0] * pods

    def work(member: Pods) -> list[Part]:
        pod = member.place.pod
        time.sleep(0.05 * (pods - pod))  # pod 0 is the last, as its checks take time
        ready[pod] = time.time()
        member.wait_for_step("1-PUT")
        begun[pod] = time.time()
        return member.exchange("1-PUT", Part([Done(1e9 + pod / 3, 0.1, f"{pod}")], pod))

    found = run(objects, pods, work)
    every = [Part([Done(1e9 + pod / 3, 0.1, f"{pod}")], pod) for pod in range(pods)]
    assert found == dict.fromkeys(range(pods), every)
    agreed = float(objects.get(f"{PREFIX}pods/0/begin-1-PUT"))
    assert max(ready) < agreed < min(begun)  # not when they happen to look
    assert max(begun) < agreed + 0.5


def test_pods_that_do_not_come_are_named() -> None:
    waits = SHORT._replace(others=0.5)
    found = run(MemoryObjects(), 8, begin, only=(0, 1, 2, 4, 6, 7), waits=waits)
    for error in found.values():
        assert isinstance(error, PodLost)
        assert error.message == "pods 3, 5 of 8 did not get ready for 1-PUT within 0.5 s"


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (StampedeError("no memory"), "pod 2 failed: no memory"),
        (KeyboardInterrupt(), "pod 2 was ended"),
        (ValueError("a"), "pod 2 failed: ValueError('a')"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_pod_that_ends_is_named_by_all_others(error: BaseException, lost: str) -> None:
    def work(member: Pods) -> None:
        member.wait_for_step("1-PUT")
        if member.place.pod == 2:
            raise error
        member.exchange("1-PUT", Part([], 0))

    started = time.monotonic()
    found = run(MemoryObjects(), 4, work, waits=SHORT._replace(silent=20.0))
    assert time.monotonic() - started < 10
    assert found.pop(2) is error
    for other in found.values():
        assert isinstance(other, PodLost)
        assert other.message == lost


@pytest.mark.parametrize("victim", [2, 0])
def test_a_pod_that_is_killed_is_named_by_all_others(victim: int) -> None:
    objects = Killed(MemoryObjects(), victim)
    stopped = []

    def work(member: Pods) -> None:
        member.wait_for_step("1-PUT")
        if member.place.pod == victim:
            objects.dead.set()
            return
        deadline = time.monotonic() + 10
        while not member.stopped() and time.monotonic() < deadline:  # at its requests
            time.sleep(0.02)
        if member.stopped():
            stopped.append(member.place.pod)
        member.exchange("1-PUT", Part([], 0))

    found = run(objects, 4, work)
    del found[victim]
    assert sorted(stopped) == sorted(found)
    left = "; objects under stress-a/ may be left: delete them" if victim == 0 else ""
    for error in found.values():
        assert isinstance(error, PodLost)
        assert error.message == f"pod {victim} of 4 gave no sign of life for 2 s{left}"


def test_pod_0_waits_until_no_other_pod_writes() -> None:
    objects = MemoryObjects()
    slow = threading.Event()

    def work(member: Pods) -> None:
        member.wait_for_step("1-PUT")
        if member.place.pod == 1:
            slow.wait(1.0)
            objects.put(f"{PREFIX}late", b"")

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(run, objects, 2, work, (1,))
        run(objects, 2, work, (0,))
        assert f"{PREFIX}late" in {info.key for info in objects.list("")}
        other.result()


def test_a_pod_that_is_started_twice_is_refused() -> None:
    objects = MemoryObjects()
    run(objects, 2, begin)
    before = {info.key: info.etag for info in objects.list("")}
    found = run(objects, 2, lambda member: None)
    for pod, error in found.items():
        assert isinstance(error, StampedeError)
        assert f"pod {pod} of run a was started twice" in error.message
    assert before == {info.key: info.etag for info in objects.list("")}


def test_a_pod_that_comes_when_all_is_deleted_writes_nothing() -> None:
    objects = MemoryObjects()
    waits = SHORT._replace(others=0.3)
    (error,) = run(objects, 2, lambda member: None, only=(1,), waits=waits).values()
    assert isinstance(error, PodLost)
    assert error.message.startswith("pod 0 of 2 did not start within 0.3 s")
    assert not list(objects.list(""))


def test_a_clock_that_is_wrong_is_an_error() -> None:
    def later(data: bytes) -> bytes:
        return repr(float(data) + 60).encode() if data.startswith(b"1") else data

    objects = MemoryObjects()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(run, Changed(objects, read=later), 2, begin, (1,))
        run(objects, 2, begin, (0,))
    error = other.result()[1]
    assert isinstance(error, StampedeError)
    assert "the nodes' clocks differ" in error.message
