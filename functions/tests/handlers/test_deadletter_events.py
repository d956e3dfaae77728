"""`deadletters` by its HTTP endpoint, on a store in memory: an odd letter fails no other."""

import base64
import json
from typing import Any

import pytest

from stampede.config.settings import Settings
from stampede.deadletters.dead_letter import letters_of, read_rows
from stampede.events.http.endpoint import EventEndpoint
from stampede.events.workers.batching import Batcher
from stampede.handlers.apps import make_batcher
from stampede.handlers.deadletters import DeadLetters
from stampede.store.objects.memory import MemoryObjects
from tests.support.http import post, posted_together

pytestmark = pytest.mark.anyio

GOOD = {
    "specversion": "1.0",
    "type": "dev.knative.kafka.event",
    "source": "/apis/v1/namespaces/default/kafkasources/test#alerts",
    "subject": "partition:0#1",
    "id": "partition:0/offset:1",
    "knativeerrorcode": "400",
    "data_base64": "eA==",
}


def answer(text: str) -> dict[str, str]:
    return {"knativeerrordata": base64.b64encode(text.encode()).decode()}


ODD: dict[str, dict[str, Any]] = {
    "a number": {"extension": 7, "knativeerrorcode": 400},
    "a truth value": {"extension": True},
    "a reason with half a character": answer('{"detail": "\\ud800"}'),
    "a deep reason": answer("[" * 100_000),
    "a reason of no text": answer('{"detail": {"a": [1]}}'),
    "a reason that is not base64": {"knativeerrordata": "é"},
}


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def batcher(objects: MemoryObjects) -> Batcher:
    return make_batcher(Settings(), DeadLetters(objects).store_batch, concurrency=1)


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_letter_fails_no_other(
    odd: str, objects: MemoryObjects, batcher: Batcher
) -> None:
    endpoint = EventEndpoint("deadletters", batcher.add, 1 << 20)
    events = [GOOD | {"subject": f"partition:0#{n}", "id": str(n)} for n in range(5)]
    events[2] |= ODD[odd]
    async with batcher:
        statuses = await posted_together(endpoint, events, path="/cutouts")
    assert statuses == [204] * 5
    (info,) = objects.list("deadletters/")
    letters = list(letters_of(read_rows(objects, info), info))
    assert [letter.position.offset for letter in letters if letter.position] == [0, 1, 2, 3, 4]
    for letter in letters:
        assert all(isinstance(value, str) for value in letter.attributes.values())


async def test_a_letter_that_cannot_be_written_fails_alone(
    objects: MemoryObjects, batcher: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with it."""
    from stampede.handlers import deadletters

    write = deadletters.write_letters

    def broken(table: str, events: Any) -> Any:
        if any(event.data == b"odd" for event in events):
            raise ValueError("what nobody thought of")
        return write(table, events)

    monkeypatch.setattr(deadletters, "write_letters", broken)
    endpoint = EventEndpoint("deadletters", batcher.add, 1 << 20)
    events = [GOOD | {"subject": f"partition:0#{n}", "id": str(n)} for n in range(3)]
    events[1]["data_base64"] = base64.b64encode(b"odd").decode()
    async with batcher:
        statuses = await posted_together(endpoint, events, path="/cutouts")
        assert statuses == [204, 500, 204]
        reply = await post(endpoint, json.dumps(events[1]).encode(), path="/cutouts")
    assert "what nobody thought of" in reply.problem["detail"]
