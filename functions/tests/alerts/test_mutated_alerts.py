"""Any mutation of an alert's bytes gives fastavro's rows or a 4xx, and harms no neighbour."""

import resource
from collections.abc import Iterator
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stampede.alerts.container import varint
from stampede.config.settings import Settings
from stampede.events.cloudevents.event import Event
from stampede.events.workers.pool import Workers
from tests.support.alerts import made_alerts
from tests.support.alerts.hostile_alerts import HOSTILE
from tests.support.children import Children
from tests.support.events import comparing_storer

pytestmark = pytest.mark.integration  # starts processes

# Seconds of CPU for each message of a batch, if each kills workers. Not seconds by the clock: on a
# busy machine it takes minutes to start worker after worker.
MOST_CPU = 20


def long_ztf(codec: str = "null") -> bytes:
    row = made_alerts.ztf_record()["candidate"]
    limit = row | {"candid": None, "magpsf": None, "sigmapsf": None, "isdiffpos": None}
    point = {"jd": 2459000.5, "fid": 2, "pid": 79, "rcid": 3}
    counts = dict.fromkeys(("forcediffimflux", "forcediffimfluxunc", "magzpsci"), 1.0)
    history = [row | {"candid": n} for n in range(1, 9)]
    return made_alerts.ztf_alert(
        9, codec, prv_candidates=[*history, limit], fp_hists=[point | counts] * 3
    )


SEEDS = {
    "lsst": made_alerts.confluent(made_alerts.rubin_record(1101, 3), 1101),
    "lsst 7.4": made_alerts.confluent(made_alerts.rubin_record(704, 4), 704),
    "ztf": long_ztf(),
    "ztf deflate": long_ztf("deflate"),
}
COUNTS = [0, -1, 1, 2, 63, 64, 1 << 20, 1 << 31, (1 << 62), -(1 << 62)]
SPLICES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([varint(count) for count in COUNTS]),
    st.sampled_from([b"\xff" * 8, b"\x80" * 9, bytes(16), b"\x00\x00\xc0\x7f", b"\x00" * 300]),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """An alert with one to four bytes or ranges replaced, removed, added or moved."""
    data = draw(st.sampled_from(list(SEEDS.values())))
    for _ in range(draw(st.integers(1, 4))):
        # Half of the mutations are in the last 4 KB, where the record's fields are.
        low = max(0, len(data) - 4000) if draw(st.booleans()) else 0
        at = draw(st.integers(low, len(data)))
        gone = draw(st.sampled_from([0, 0, 1, 1, 1, 2, 8, 50, 400]))
        match draw(st.sampled_from(["replace", "flip", "cut", "copy"])):
            case "replace":
                data = data[:at] + draw(SPLICES) + data[at + gone :]
            case "flip" if at < len(data):
                flipped = data[at] ^ 1 << draw(st.integers(0, 7))
                data = data[:at] + bytes([flipped]) + data[at + 1 :]
            case "cut":
                data = data[:at]
            case "copy":
                data = data[:at] + data[at - gone : at] + data[at:]
    return data


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BlockingPortal, Workers, Children]]:
    spool, started = tmp_path_factory.mktemp("spool"), Children()
    with start_blocking_portal() as portal:
        # `flush_seconds` are of the clock too: at the end of them a batch fails as a whole.
        given = Settings(spool=spool, flush_seconds=3600)
        workers = Workers("fuzzing", comparing_storer.make, given)
        with portal.wrap_async_context_manager(workers):
            yield portal, workers, started


def outcomes(running: Any, messages: list[bytes]) -> list[Any]:
    portal, workers, started = running
    events = [
        Event({"id": str(n), "source": "x#alerts", "subject": f"partition:0#{n}"}, message)
        for n, message in enumerate(messages)
    ]
    begin = taken_cpu(started)
    found = portal.call(workers.store_batch, events)
    assert taken_cpu(started) - begin < MOST_CPU * len(messages)
    return found


def taken_cpu(started: Children) -> float:
    """Seconds of CPU of the processes that are alive, and of those that ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for process in started():
        times = process.cpu_times()
        total += times.user + times.system
    return total


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking would kill hundreds of workers
)
@given(st.lists(mutated(), min_size=1, max_size=12))
def test_a_mutated_alert_is_decoded_as_fastavro_does_or_refused(running, messages) -> None:
    first, *found, last = outcomes(running, [SEEDS["lsst"], *messages, SEEDS["ztf"]])
    assert first is last is None
    for message, outcome in zip(messages, found, strict=True):
        if outcome is not None:
            assert 400 <= outcome.status < 500, (outcome.message, message.hex())
            assert len(outcome.message) < 1000


def test_hostile_alerts_in_one_batch(running) -> None:
    """Each is to blame; each good one among them is decoded."""
    hostile = [HOSTILE[name]() for name in HOSTILE if "floats" not in name]
    good = [made_alerts.ztf_alert(n) for n in range(1, 30)]
    found = outcomes(running, [*good[:10], *hostile, *good[10:]])
    assert [outcome and outcome.status for outcome in found[:10]] == [None] * 10
    assert {outcome.status for outcome in found[10 : 10 + len(hostile)]} <= {400, 422}
    assert [outcome and outcome.status for outcome in found[10 + len(hostile) :]] == [None] * 19
