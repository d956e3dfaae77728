"""Traces of alerts, from Kafka to the thumbnail, by OpenTelemetry; none unless `start` was called.

The context of a trace travels as W3C's ``traceparent`` (https://www.w3.org/TR/trace-context/): in a
header of a Kafka record, in an attribute of an event (CloudEvents' extension "Distributed
Tracing"), and in the metadata of an object, which the store's notification repeats. Its
``tracestate`` is dropped.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer

NAME = "traceparent"
METADATA = f"x-amz-meta-{NAME}"
EXPORT_SECONDS = 3.0  # for a request to the collector; a process that ends waits for the last one

# A later version than 00 may have more fields.
_FORM = re.compile(
    r"(?:00(?=.{53}\Z)|(?!00|ff)[0-9a-f]{2})"
    r"-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_SAMPLED = 1

_tracer: "Tracer | None" = None
_share = 0.0
_current: ContextVar[str | None] = ContextVar(NAME, default=None)


class Step:
    """A step of a trace that is under way; OpenTelemetry calls it a span.

    Attributes
    ----------
    traceparent
        The context that the next step continues.
    """

    def __init__(self, span: "Span") -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers of an event: for the function, and for the proxies on the way to it."""
        return {NAME: self.traceparent, f"ce-{NAME}": self.traceparent}

    def fail(self, reason: str) -> None:
        """Mark the step as failed."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_status(Status(StatusCode.ERROR, reason))


def start(service: str, collector: str, share: float) -> None:
    """Record steps, and send them to a collector. Call it once in a process.

    Parameters
    ----------
    service
        The process's name in traces.
    collector
        URL that takes OTLP over HTTP, without its path; if it is empty no steps are recorded.
    share
        Of the alerts that come without a trace, how many get one.
    """
    global _tracer, _share
    if not collector:
        return
    # Imported here: it takes 0.2 s, and most installations have no collector.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    exporter = OTLPSpanExporter(f"{collector.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
    provider = TracerProvider(ALWAYS_ON, Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer, _share = provider.get_tracer("stampede"), share


def step(
    name: str, before: str | None, linked: Sequence[str] = (), may_begin: bool = False
) -> AbstractContextManager[Step | None]:
    """A step of the trace of `before`; None if that is not recorded.

    Within the step, `current` and the lines of logs have its context.

    Parameters
    ----------
    before
        The ``traceparent`` of the step before.
    linked
        Those of other traces that this step belongs to as well.
    may_begin
        Whether to begin a trace for a share of those that come without one.
    """
    if _tracer is None:
        return _NONE
    if before is None or not _FORM.fullmatch(before):
        if may_begin and random.random() < _share:
            return _record(_tracer, name, None, linked)
        return _NONE
    return _record(_tracer, name, before, linked) if sampled(before) else _NONE


_NONE: AbstractContextManager[None] = nullcontext()


@contextmanager
def _record(
    tracer: "Tracer", name: str, before: str | None, linked: Sequence[str]
) -> Iterator[Step]:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, NonRecordingSpan, set_span_in_context

    context = Context()
    if before:
        context = set_span_in_context(NonRecordingSpan(_context_of(before)), context)
    links = [Link(_context_of(each)) for each in linked]
    with tracer.start_as_current_span(name, context, links=links) as span:
        found = Step(span)
        with carrying(found.traceparent):
            yield found


def note(attributes: Mapping[str, str | int | float]) -> None:
    """Set attributes of the step under way."""
    if _tracer is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().set_attributes(attributes)


def recording() -> bool:
    """Whether this process records steps."""
    return _tracer is not None


def recorded(traceparents: Iterable[str | None]) -> list[str]:
    """Those whose traces this process records."""
    return [] if _tracer is None else [each for each in traceparents if each and sampled(each)]


def sampled(traceparent: str | None) -> bool:
    """Whether it is valid, and its trace is recorded."""
    match = _FORM.fullmatch(traceparent) if traceparent else None
    return bool(match and int(match[3], 16) & _SAMPLED)


def current() -> str | None:
    """The ``traceparent`` of the step under way."""
    return _current.get()


@contextmanager
def carrying(traceparent: str | None) -> Iterator[None]:
    """Make `traceparent` the current one: of a step of another process, for example."""
    token = _current.set(traceparent)
    try:
        yield
    finally:
        _current.reset(token)


def of_record(headers: Iterable[tuple[str, bytes | None]]) -> str | None:
    """The ``traceparent`` in the headers of a Kafka record."""
    for name, value in headers:
        if name.lower() == NAME and value:
            return value.decode("ascii", "replace")
    return None


def log_fields(traceparent: str | None) -> dict[str, str]:
    """The fields of a line in a log that say to which trace it belongs."""
    match = _FORM.fullmatch(traceparent) if traceparent else None
    return {"trace_id": match[1], "span_id": match[2]} if match else {}


def _context_of(traceparent: str) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    match = _FORM.fullmatch(traceparent)
    if not match:
        raise ValueError(f"not a traceparent: {traceparent!r}")
    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
