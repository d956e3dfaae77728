"""One trace of one alert: from the header of its Kafka record to its thumbnail."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from e2e.commands import until
from e2e.stampede_up import StampedeUp
from stampede_local.cli import TOPICS
from tests.support.alerts import made_alerts
from tests.support.collector import Collector, Span

pytestmark = pytest.mark.timeout(600)

SECONDS = 120  # timeout; RGW serves a new topic within 30 s
TRACES = ["0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319d"]
SENDER = "b7ad6b7169203331"
STEPS = [
    ("stampede-alerts", "deliver alert"),
    ("stampede-alerts", "alerts takes event"),
    ("stampede-alerts", "store batch"),
    ("stampede-notifications", "announce object"),
    ("stampede-broker", "broker takes event"),
    ("stampede-thumbnails", "thumbnails takes event"),
]


def chain(spans: list[Span], trace: str) -> list[tuple[str, str]]:
    """Service and name of the steps from the sender's on to a thumbnail's; empty if broken."""
    of_trace = {span.id: span for span in spans if span.trace == trace}
    for last in of_trace.values():
        steps, span = [], last
        if last.service != "stampede-thumbnails":
            continue
        while True:
            steps.append((span.service, span.name))
            if span.parent == SENDER:
                return steps[::-1]
            if span.parent not in of_trace:
                break
            span = of_trace[span.parent]
    return []


def whole(spans: list[Span]) -> list[str]:
    """The traces that lead from the sender to a thumbnail."""
    return [trace for trace in TRACES if chain(spans, trace) == STEPS]


def test_one_trace_from_kafka_to_the_thumbnail(tmp_path: Path) -> None:
    env = {"STAMPEDE_TRACE_SHARE": "0", "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with (
        Collector() as collector,
        StampedeUp(tmp_path / "data", STAMPEDE_TRACES=collector.url, **env) as up,
    ):
        producer = Producer({"bootstrap.servers": up.kafka})
        for number, trace in enumerate([*TRACES, None]):  # the last one without a trace
            record = made_alerts.rubin_record(1101, 7_000 + number)
            headers: dict[str, str | bytes | None] = {}
            if trace:
                headers["traceparent"] = f"00-{trace}-{SENDER}-01"
            producer.produce(TOPICS[0], made_alerts.confluent(record, 1101), headers=headers)
        assert producer.flush(60) == 0
        up.wait_until_stored()
        until(lambda: len(whole(collector.spans)) > 0, SECONDS)
        spans = collector.spans
        log = (up.data / "logs" / "thumbnails.log").read_text()
    # A batch is a step of its first alert's trace, and linked to the others' steps.
    found = whole(spans)
    lines = [json.loads(line) for line in log.splitlines() if '"thumbnails drawn"' in line]
    assert found[0] in {line.get("trace_id") for line in lines}
    batches = [span for span in spans if span[:2] == STEPS[2]]
    assert batches
    for trace in TRACES:
        (taken,) = [span for span in spans if span[:3] == (*STEPS[1], trace)]
        assert [span for span in batches if taken.id in {span.parent, *span.links}]
    assert all(float(span.attributes["stampede.seconds.put"]) > 0 for span in batches)
    assert {span.trace for span in spans} == set(TRACES)
