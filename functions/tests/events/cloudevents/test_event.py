"""The Kafka position of an event."""

import pytest

from stampede.events.cloudevents.event import Event, coverage_of_positions
from stampede.store.offsets.coverage import Coverage

SOURCE = "/apis/v1/namespaces/default/kafkasources/stampede#ztf_20261120_programid1"


def position(subject: str | None, source: str = SOURCE):
    return Event({"id": "1", "source": source, "subject": subject}, b"").position


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("partition:0#0", (0, 0)),
        ("partition:12#987654321", (12, 987654321)),
        (f"partition:1#{10**18 - 1}", (1, 10**18 - 1)),
    ],
)
def test_the_position_of_an_event(subject: str, expected: tuple[int, int]) -> None:
    assert position(subject) == ("ztf_20261120_programid1", *expected)


@pytest.mark.parametrize(
    "subject",
    [
        None,
        "",
        "alert 5",
        "partition:0",
        "partition:0#",
        "partition:-1#5",
        "partition:0#5 ",
        "partition:0#5\n",
        "partition:0#٥",
        # More digits than an offset has: a malformed event must not break a batch.
        "partition:0#99999999999999999999",
        "partition:99999999999#1",
    ],
)
def test_a_subject_that_is_not_a_position(subject: str | None) -> None:
    assert position(subject) is None


def test_a_source_without_a_topic() -> None:
    assert position("partition:0#5", "/some/other/source") is None
    assert position("partition:0#5", "/some/other/source#") is None


def test_without_a_subject() -> None:
    assert Event({"id": "1", "source": SOURCE}, b"").position is None


def test_offsets_that_are_no_messages_are_covered_apart() -> None:
    positions = [position("partition:0#5"), None, position("partition:0#9")]
    stored, others = coverage_of_positions(positions, [0, 0, 3]).split()
    topic = "ztf_20261120_programid1"
    assert stored == Coverage.of({(topic, 0): [5, 9]})
    assert others == Coverage.of({(topic, 0): [6, 7, 8]})
    # A count that is wrong never reaches below the first offset.
    _, others = coverage_of_positions([position("partition:0#2")], [10**17]).split()
    assert others == Coverage.of({(topic, 0): [0, 1]})


def test_coverage_of_positions_skips_events_without_one() -> None:
    positions = [position(f"partition:{p}#{o}") for p, o in [(0, 5), (1, 2), (0, 6), (0, 5)]]
    topic = "ztf_20261120_programid1"
    assert coverage_of_positions([*positions, None]) == Coverage.of(
        {(topic, 0): [5, 6], (topic, 1): [2]}
    )
    assert not coverage_of_positions([None])
