"""The context of a trace, and the steps that are recorded of it."""

import random
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.context import Context
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stampede.telemetry import tracing
from tests.support.collector import Collector
from tests.support.waiting import eventually

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector to which this process sends its steps."""
    monkeypatch.setattr(tracing, "_tracer", None)
    monkeypatch.setattr(tracing, "_share", 0.0)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with Collector() as collector:
        yield collector


def test_a_step_continues_the_trace_before_and_is_linked_to_others(collector: Collector) -> None:
    tracing.start("stampede-test", collector.url, 0)
    other = f"00-{'a' * 32}-{'b' * 16}-01"
    with tracing.step("store batch", PARENT, [other]) as step:
        assert step
        tracing.note({"count": 3})
        assert tracing.current() == step.traceparent
        with tracing.step("write", tracing.current()) as inner:
            assert inner
            inner.fail("down")
    assert tracing.current() is None
    eventually(lambda: len(collector.spans) == 2)
    spans = {span.name: span for span in collector.spans}
    outer, inner_span = spans["store batch"], spans["write"]
    assert (outer.service, outer.trace, outer.parent) == ("stampede-test", TRACE, SPAN)
    assert outer.links == {"b" * 16}
    assert outer.attributes == {"count": "3"}
    assert not outer.failed
    assert (inner_span.trace, inner_span.parent, inner_span.failed) == (TRACE, outer.id, True)
    assert step.traceparent == f"00-{TRACE}-{outer.id}-01"
    assert step.headers == {"traceparent": step.traceparent, "ce-traceparent": step.traceparent}


def test_a_step_that_raises_has_failed(collector: Collector) -> None:
    tracing.start("stampede-test", collector.url, 0)
    with pytest.raises(ValueError, match="x"), tracing.step("store batch", PARENT):
        raise ValueError("x")
    eventually(lambda: bool(collector.spans))
    assert collector.spans[0].failed


@pytest.mark.parametrize(
    ("before", "share", "recorded"),
    [
        (None, 0, False),
        (None, 1, True),
        ("no context", 1, True),  # as W3C says: as if there were none
        (PARENT, 0, True),
        (PARENT[:-1] + "0", 1, False),  # its sender decided against it
        (PARENT[:-1] + "3", 0, True),  # flags of later versions
        (f"01{PARENT[2:]}-more", 0, True),  # fields of later versions
        (f"{PARENT}-more", 0, False),
    ],
)
def test_which_alerts_are_recorded(
    collector: Collector, before: str | None, share: float, recorded: bool
) -> None:
    tracing.start("stampede-test", collector.url, share)
    with tracing.step("deliver alert", before, may_begin=True) as step:
        assert (step is not None) == recorded
    with tracing.step("takes event", None) as step:  # only a source begins traces
        assert step is None


def test_a_share_of_alerts_is_recorded(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "random", random.Random(1).random)
    tracing.start("stampede-test", collector.url, 0.1)
    recorded = 0
    for _ in range(1000):
        with tracing.step("deliver alert", None, may_begin=True) as step:
            recorded += step is not None
    assert 70 < recorded < 130


def test_nothing_is_recorded_nor_imported_without_a_collector() -> None:
    """The default. OpenTelemetry would take 0.2 s of each start."""
    code = f"""
import sys
from stampede.telemetry import tracing
tracing.start("stampede-test", "", 1)
with tracing.step("deliver alert", "{PARENT}", may_begin=True) as step:
    assert step is None
tracing.note({{"a": 1}})
assert tracing.recorded(["{PARENT}"]) == []
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


HEXADECIMAL = st.text("0123456789abcdefF", min_size=2, max_size=2)
NEARLY = st.builds(
    "{}-{}-{}-{}{}".format,
    st.sampled_from(["00", "01", "cc", "ff", "0"]),
    st.sampled_from([TRACE, "0" * 32, TRACE.upper(), TRACE[:-1]]),
    st.sampled_from([SPAN, "0" * 16, SPAN + "0"]),
    HEXADECIMAL,
    st.sampled_from(["", "-later", "\n"]),
)


@example(f"{PARENT}-later")
@example(f"{PARENT}x")
@example(f"01{PARENT[2:]}x")
@given(NEARLY | st.text(max_size=60))
def test_it_believes_no_context_that_opentelemetry_does_not(text: str) -> None:
    found = TraceContextTextMapPropagator().extract({"traceparent": text}, Context())
    context = get_current_span(found).get_span_context()
    if tracing.sampled(text):
        assert context.is_valid
        assert context.trace_flags.sampled
    if tracing.log_fields(text):
        ids = {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
        assert tracing.log_fields(text) == ids


def test_the_context_in_the_headers_of_a_kafka_record() -> None:
    headers = [("a", b"b"), ("traceparent", None), ("TraceParent", PARENT.encode())]
    assert tracing.of_record(headers) == PARENT
    assert tracing.of_record([]) is None
    broken = tracing.of_record([("traceparent", b"\xff")])
    assert broken
    assert not tracing.sampled(broken)
