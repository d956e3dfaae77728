"""No call of Kafka's client waits for ever: Kafka may be away at any moment.

Most calls of confluent-kafka wait without a limit unless one is given. A source that waits so takes
no records, and says nothing of its state.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

FUNCTIONS = Path(__file__).parents[1]
PACKAGES = ("stampede", "stampede_local", "stampede_bench")
# The number of the argument that limits the wait, by method; -1 if there is none.
LIMITS = {
    "list_topics": 1,
    "committed": 1,
    "get_watermark_offsets": 1,
    "offsets_for_times": 1,
    "consume": 1,
    "poll": 0,
    "flush": 0,
    "commit": -1,
}
# Methods whose name other objects have too: only calls on these names count.
SHARED = {
    "flush": {"producer", "client", "kafka"},
    "poll": {"consumer", "producer", "client", "kafka"},
    "commit": {"consumer"},
    "committed": {"consumer"},
    "consume": {"consumer"},
}


def unlimited(code: str) -> Iterator[str]:
    """The calls that may wait for ever."""
    for call in ast.walk(ast.parse(code)):
        if isinstance(call, ast.Call) and waits(call):
            yield ast.unparse(call)


def waits(call: ast.Call) -> bool:
    """Whether this is a call of a method of Kafka's client, without a limit."""
    method = call.func
    if not isinstance(method, ast.Attribute) or method.attr not in LIMITS:
        return False
    number = LIMITS[method.attr]
    names = SHARED.get(method.attr)
    if (
        names
        and getattr(method.value, "attr", getattr(method.value, "id", "")).strip("_") not in names
    ):
        return False
    options = {each.arg: ast.unparse(each.value) for each in call.keywords}
    if number == -1:
        return options.get("asynchronous") == "False"
    return len(call.args) <= number and not options.keys() & {"timeout", "cached"}


def test_no_call_of_kafka_s_client_waits_for_ever() -> None:
    found = [
        f"{file.relative_to(FUNCTIONS)}: {call}"
        for package in PACKAGES
        for file in sorted((FUNCTIONS / package).rglob("*.py"))
        for call in unlimited(file.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "call",
    [
        "consumer.commit(offsets=offsets, asynchronous=False)",
        "self._consumer.list_topics()",
        "consumer.list_topics(topic)",
        "consumer.committed(partitions)",
        "consumer.get_watermark_offsets(partition)",
        "consumer.poll()",
        "producer.flush()",
    ],
)
def test_a_call_without_a_limit_is_found(call: str) -> None:
    assert [*unlimited(f"def ask():\n    return {call}")] == [call]


@pytest.mark.parametrize(
    "call",
    [
        "consumer.commit(offsets=offsets)",
        "consumer.list_topics(topic, 5)",
        "consumer.list_topics(timeout=5)",
        "consumer.get_watermark_offsets(partition, cached=True)",
        "consumer.poll(0.1)",
        "file.flush()",
    ],
)
def test_a_call_with_a_limit_is_not(call: str) -> None:
    assert [*unlimited(f"def ask():\n    return {call}")] == []
