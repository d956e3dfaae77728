"""Sources come and go while alerts arrive: none is lost, and few are sent twice."""

import threading
import time
from collections import Counter
from functools import partial

import pytest

from stampede_local.process import Process
from tests.support import waiting
from tests.support.events.receiver import PARTITIONS, Receiver, arrived

eventually = partial(waiting.eventually, seconds=120)
IN_FLIGHT = 40


def assigned(source: Process) -> bool:
    return "partitions assigned" in source.tail(200)


def test_one_to_four_to_one_in_mid_stream(start, produce) -> None:
    """Sources leave as Kubernetes ends them. What is in flight then arrives, and is committed."""
    made: dict = {}
    stop = threading.Event()

    def stream() -> None:
        while not stop.is_set():
            made.update(produce(200))
            time.sleep(0.1)

    with Receiver() as sink:
        sink.delay = 0.02
        stream_thread = threading.Thread(target=stream)
        stream_thread.start()
        try:
            sources = [start(sink, STAMPEDE_IN_FLIGHT=str(IN_FLIGHT))]
            eventually(lambda: len(sink.accepted) > 500)
            sources += [start(sink, STAMPEDE_IN_FLIGHT=str(IN_FLIGHT)) for _ in range(3)]
            eventually(lambda: all(map(assigned, sources)))
            after_four = len(sink.accepted)
            eventually(lambda: len(sink.accepted) > after_four + 1000)
            for source in sources[:3]:
                source.stop()
                assert source.status == 0
            after_one = len(sink.accepted)
            eventually(lambda: len(sink.accepted) > after_one + 1000)
        finally:
            stop.set()
            stream_thread.join()
        eventually(lambda: len(arrived(sink)) == len(made))
        assert arrived(sink) == made, "an alert is lost, or another one"
        twice = sum(times - 1 for times in Counter(e.place for e in sink.accepted).values())
    print(f"{len(made)} alerts, {twice} of them twice")
    # Only what a source held when it gave a partition up can come twice, six times here.
    assert twice <= 6 * IN_FLIGHT


@pytest.mark.parametrize("static", [False, True])
def test_a_restart(start, produce, static: bool) -> None:
    """A static member has its partitions again; others do not take them in the meantime."""

    def go(number: int) -> Process:
        instance = {"STAMPEDE_GROUP_INSTANCE_ID": f"pod-{number}"} if static else {}
        return start(sink, STAMPEDE_IN_FLIGHT=str(IN_FLIGHT), **instance)

    with Receiver() as sink:
        sources = [go(number) for number in range(2)]
        eventually(lambda: all(map(assigned, sources)))
        made = produce(400)
        eventually(lambda: len(arrived(sink)) == len(made))
        changes = sources[1].tail(400).count("partitions assigned")
        sources[0].stop()
        assert sources[0].status == 0
        begin = time.monotonic()
        made |= produce(400)
        again = go(0)
        eventually(lambda: len(arrived(sink)) == len(made))
        print(f"all arrived {time.monotonic() - begin:.1f} s after one of two sources ended")
        assert arrived(sink) == made
        assert len(sink.accepted) == len(made), "an alert came twice"
        if static:
            assert sources[1].tail(400).count("partitions assigned") == changes
            assert assigned(again)


def test_a_static_member_that_ends_for_good_leaves_its_partitions_for_a_while(
    start, produce
) -> None:
    """So a source that an autoscaler ends must not be one: here 6 s, by default 45 s."""
    with Receiver() as sink:
        sources = [start(sink, STAMPEDE_GROUP_INSTANCE_ID=f"pod-{n}") for n in range(2)]
        eventually(lambda: all(map(assigned, sources)))
        sources[0].stop()
        made = produce(40 * PARTITIONS)
        begin = time.monotonic()
        eventually(lambda: len(arrived(sink)) == len(made))
        assert time.monotonic() - begin > 2
        assert arrived(sink) == made


def test_of_two_sources_of_one_name_the_later_one_works(start, produce) -> None:
    """As when Kubernetes starts a pod again while the old one still runs on a lost node."""
    with Receiver() as sink:
        old = start(sink, STAMPEDE_GROUP_INSTANCE_ID="pod-0")
        eventually(lambda: assigned(old))
        new = start(sink, STAMPEDE_GROUP_INSTANCE_ID="pod-0")
        eventually(lambda: assigned(new))
        eventually(lambda: not old.running)
        assert old.status not in (0, None)
        assert "fenced" in old.tail(5)
        made = produce(40 * PARTITIONS)
        eventually(lambda: len(arrived(sink)) == len(made))
        assert new.running
