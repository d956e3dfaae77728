"""What a commit says beside its offset."""

import pytest

from stampede.events.kafka.topic_ids import commit_note, of_another_topic, read_note
from stampede.events.kafka.topics import Commit

TOPIC_ID = "IWjJSHdpQaUOMUsZVeuq2Q"


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None])
@pytest.mark.parametrize("behind", [{}, {"cutouts": 0}, {"cutouts": 123, "detections": 1 << 60}])
def test_a_note_is_read_as_it_was_written(topic_id: str | None, behind: dict[str, int]) -> None:
    note = commit_note(topic_id, behind)
    assert read_note(note) == (topic_id, behind)
    assert len(note) < 4096  # Kafka's offset.metadata.max.bytes
    assert not of_another_topic(note, topic_id)
    assert of_another_topic(note, "another") == (topic_id is not None)


def test_notes_of_earlier_releases_are_read() -> None:
    assert commit_note(TOPIC_ID) == f"topicid={TOPIC_ID}"
    assert read_note(f"topicid={TOPIC_ID}") == (TOPIC_ID, {})


@pytest.mark.parametrize("note", [None, "", "x", "=", ";;", "cutouts=", "cutouts=-1", "cutouts=1x"])
def test_what_other_tools_note_says_nothing(note: str | None) -> None:
    assert read_note(note) == (None, {})
    assert not of_another_topic(note, TOPIC_ID)


def test_a_table_that_lacks_nothing_has_all_below_the_offset() -> None:
    commit = Commit(9, {"cutouts": 3})
    assert (commit.of_table("cutouts"), commit.of_table("detections")) == (3, 9)
