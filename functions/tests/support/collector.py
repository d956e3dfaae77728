"""A collector of traces: takes OTLP over HTTP, and keeps the spans."""

from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.events.receiver import Receiver


class Span(NamedTuple):
    """One span, its ids in hexadecimal."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: frozenset[str]  # ids of spans
    attributes: dict[str, str]
    failed: bool


class Collector(Receiver):
    """Listens while entered."""

    @property
    def spans(self) -> list[Span]:
        """All spans so far."""
        found = []
        for request in self.requests:
            for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans:
                service = {each.key: each.value for each in resource.resource.attributes}
                name = service["service.name"].string_value
                for scope in resource.scope_spans:
                    found += [_span(name, span) for span in scope.spans]
        return found


def _span(service: str, span: object) -> Span:
    return Span(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        frozenset(link.span_id.hex() for link in span.links),
        {
            each.key: str(each.value).partition(": ")[2].strip().strip('"')
            for each in span.attributes
        },
        span.status.code == span.status.STATUS_CODE_ERROR,
    )
