"""What must be true of a topic of which Kafka deleted records before they were stored."""

import re

from e2e.commands import CommandResult
from e2e.faults.kafka import TOPIC, Kafka
from tests.support.store import stored_alerts

MISSING = re.compile(rf"missing from (\w+): {TOPIC} partition 0, offsets ([\d,]+) to ([\d,]+)")
TABLES = ("cutouts", "detections")


def missing(audit: CommandResult) -> dict[str, set[int]]:
    """The offsets of the topic that `stampede audit` says are missing, by table."""
    found: dict[str, set[int]] = {table: set() for table in TABLES}
    for table, *span in MISSING.findall(audit.output):
        low, last = (int(number.replace(",", "")) for number in span)
        found[table] |= set(range(low, last + 1))
    return found


def compare(audit: CommandResult, read: str, kafka: Kafka) -> str:
    """Assert that each alert is stored, or that the audit names its offset; what was seen."""
    lost = missing(audit)
    # Not always as deleted: a Kafka that is killed soon after may have the records again.
    assert bool(audit.status) == any(lost.values()), audit.report()
    for table, offsets in lost.items():
        assert offsets <= kafka.forgotten, f"{table}: {sorted(offsets - kafka.forgotten)}"
    stored = {
        offset: alert for offset, alert in kafka.sent.items() if offset not in lost["cutouts"]
    }
    cutouts = stored_alerts.stored_cutouts(read, [each.alert_id for each in kafka.sent.values()])
    assert not stored_alerts.differences(stored_alerts.cutouts_of(stored.values()), cutouts)
    objects = {each.object_id for each in kafka.sent.values()}
    points = stored_alerts.light_curve_points(read, objects)
    for offset, alert in kafka.sent.items():
        if offset not in lost["detections"]:
            assert (alert.survey, alert.object_id, alert.alert_id) in points, offset
    gone = {table: len(offsets) for table, offsets in lost.items()}
    return f"of {len(kafka.sent)} alerts the audit says that {gone} are missing; others are stored"
