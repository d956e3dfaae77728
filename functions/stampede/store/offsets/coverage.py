"""Coverage: a set of Kafka offsets, as intervals per topic partition.

Every run, pack and object of dead letters carries one in its Parquet footer, so that
``received = stored + dead-lettered`` can be proved from a handful of footers.
"""

import json
from collections.abc import Iterable, Mapping
from operator import is_

import numpy as np

LARGE = 256
"""Partitions of a coverage that is large."""
COVERAGE = b"stampede.coverage"  # its key in a Parquet footer
PartitionId = tuple[str, int]  # topic key and number of the partition
Interval = tuple[int, int]  # offsets [low, high)


def topic_key(topic: str, topic_id: str | None) -> str:
    """The name of a topic in a coverage: ``topic@id``, or ``topic`` if its id is not known.

    An offset is no identity: a topic that was deleted and made anew, or a replaced cluster, counts
    from 0 again. Kafka gives every new topic another id. No topic's name has an ``@``.
    """
    return f"{topic}@{topic_id}" if topic_id else topic


def split_topic_key(key: str) -> tuple[str, str | None]:
    """Name and id of the topic of a key; see `topic_key`."""
    topic, _, topic_id = key.partition("@")
    return topic, topic_id or None


def not_messages_key(key: str) -> str:
    """The key under which a coverage keeps the offsets of a topic that are no messages.

    Neither a topic's name nor its id has a ``~``.
    """
    return f"{key}~"


class Coverage:
    """An immutable set of Kafka offsets.

    A topic is named by its `topic_key`. Kept per (topic, partition) as an int64 array of shape
    (n, 2): half-open intervals that neither touch nor overlap, in order, so two coverages are equal
    exactly if their arrays are.
    """

    __slots__ = ("_spans",)

    def __init__(self, spans: Mapping[PartitionId, np.ndarray] | None = None) -> None:
        self._spans = {
            partition: array for partition, array in sorted((spans or {}).items()) if len(array)
        }

    @classmethod
    def of(cls, offsets: Mapping[PartitionId, Iterable[int]]) -> "Coverage":
        """Coverage of single offsets, in any order, repeats allowed."""
        return cls(
            {
                partition: intervals_of(np.fromiter(numbers, np.int64))
                for partition, numbers in offsets.items()
            }
        )

    @classmethod
    def union(cls, parts: Iterable["Coverage"]) -> "Coverage":
        """All of `parts` in one: a copy of the largest, and the work for what the others add.

        A partition in which two of them differ costs a sort.
        """
        largest, *others = sorted(parts, key=lambda part: len(part._spans), reverse=True) or [cls()]
        found = dict(largest._spans)
        several: dict[PartitionId, list[np.ndarray]] = {}
        for part in others:
            for partition, spans in part._spans.items():
                known = found.setdefault(partition, spans)
                if not same_spans(known, spans):
                    several.setdefault(partition, [known]).append(spans)
        grown = len(found) > len(largest._spans)
        found |= {each: united(np.concatenate(arrays)) for each, arrays in several.items()}
        # Those that are new are few, and behind the others: to sort takes one comparison each.
        return _in_order({each: found[each] for each in sorted(found)} if grown else found)

    def __or__(self, other: "Coverage") -> "Coverage":
        return Coverage.union((self, other))

    def __sub__(self, other: "Coverage") -> "Coverage":
        left: dict[PartitionId, np.ndarray] = {}
        for partition, spans in self._spans.items():
            holes = other._spans.get(partition)
            if holes is None:
                left[partition] = spans
            elif not same_spans(spans, holes) and len(rest := _without(spans, holes)):
                left[partition] = rest
        return _in_order(left)

    def __len__(self) -> int:
        return sum(int((spans[:, 1] - spans[:, 0]).sum()) for spans in self._spans.values())

    def __contains__(self, position: tuple[str, int, int]) -> bool:
        """Whether the offset ``(topic, partition, offset)`` is held."""
        topic, partition, offset = position
        spans = self._spans.get((topic, partition))
        return spans is not None and bool(_inside(np.array([offset]), spans)[0])

    def __bool__(self) -> bool:
        return bool(self._spans)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Coverage):
            return NotImplemented
        return self._spans.keys() == other._spans.keys() and all(
            same_spans(spans, other._spans[partition]) for partition, spans in self._spans.items()
        )

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"Coverage({self.to_json()})"

    def partitions(self) -> list[PartitionId]:
        """The (topic, partition) pairs with any offset held, sorted."""
        return list(self._spans)

    def intervals(self, topic: str, partition: int) -> list[Interval]:
        """The held offsets of one partition as half-open ``(start, end)``, in order."""
        spans = self._spans.get((topic, partition))
        return [] if spans is None else [(start, end) for start, end in spans.tolist()]

    def missing(self, topic: str, partition: int, low: int, high: int) -> list[Interval]:
        """The offsets of ``[low, high)`` that are not held, as half-open intervals."""
        if low >= high:
            return []
        wanted = Coverage({(topic, partition): np.array([[low, high]], np.int64)})
        return (wanted - self).intervals(topic, partition)

    def split(self) -> tuple["Coverage", "Coverage"]:
        """The offsets of messages, and those that are no messages, both under the topics' keys."""
        skipped = {topic for topic in {topic for topic, _ in self._spans} if topic.endswith("~")}
        if not skipped:
            return self, Coverage()
        kept = {place: spans for place, spans in self._spans.items() if place[0] not in skipped}
        others = {
            (topic.removesuffix("~"), number): spans
            for (topic, number), spans in self._spans.items()
            if topic in skipped
        }
        return _in_order(kept), Coverage(others)

    def renamed(self, topic_keys: Mapping[str, str]) -> "Coverage":
        """The same offsets under other topic keys; keys that are not in the mapping stay."""
        return Coverage.union(
            Coverage({(topic_keys.get(key, key), number): spans})
            for (key, number), spans in self._spans.items()
        )

    def to_json(self) -> str:
        """``{"topic/0": [[start, end], ...], ...}``; equal coverages give equal text."""
        return json.dumps(
            {f"{topic}/{number}": spans.tolist() for (topic, number), spans in self._spans.items()},
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> "Coverage":
        """Read `to_json`'s text; intervals may come in any order and overlap."""
        spans = {}
        for name, intervals in json.loads(text).items():
            topic, _, number = name.rpartition("/")
            spans[topic, int(number)] = united(np.array(intervals, np.int64).reshape(-1, 2))
        return cls(spans)


class LastUnion:
    """Unites coverages that nearly always are the same objects as the last time.

    Then the result is the same object too. The large ones are united apart: there are new small
    ones every second, and large ones every hour.
    """

    def __init__(self) -> None:
        # Together, because threads may share it.
        self._last: tuple[list[Coverage], Coverage] = [], Coverage()
        self._large: LastUnion | None = None

    def of(self, parts: Iterable[Coverage]) -> Coverage:
        """The union of `parts`."""
        parts = list(parts)
        before, union = self._last
        if len(parts) == len(before) and all(map(is_, parts, before)):
            return union
        large = [part for part in parts if len(part._spans) > LARGE]
        if large and len(large) < len(parts):
            self._large = self._large or LastUnion()
            small = [part for part in parts if len(part._spans) <= LARGE]
            union = Coverage.union([self._large.of(large), *small])
        else:
            union = Coverage.union(parts)
        self._last = parts, union
        return union


def arrays(coverage: Coverage) -> Mapping[PartitionId, np.ndarray]:
    """The intervals of each partition, in order: arrays of shape (n, 2) that nobody may change.

    A union with another coverage has the same objects for partitions that only one of them holds.
    """
    return coverage._spans


def _in_order(spans: dict[PartitionId, np.ndarray]) -> Coverage:
    """A coverage of intervals that are in order already, and not empty."""
    made = Coverage()
    made._spans = spans
    return made


def same_spans(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of intervals are equal: a fifth of the time of `np.array_equal`."""
    return one is other or (len(one) == len(other) and one.tobytes() == other.tobytes())


def intervals_of(offsets: np.ndarray) -> np.ndarray:
    """Offsets in any order, repeats allowed, as intervals: int64 of shape (n, 2)."""
    return united(np.stack([offsets, offsets + 1], axis=1))


def united(spans: np.ndarray) -> np.ndarray:
    """Intervals of shape (n, 2) in any order, sorted; those that touch or overlap are joined."""
    spans = spans[spans[:, 0] < spans[:, 1]]
    if len(spans) < 2:
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reach = np.maximum.accumulate(spans[:, 1])
    gaps = np.flatnonzero(spans[1:, 0] > reach[:-1]) + 1
    starts = spans[np.concatenate([[0], gaps]), 0]
    ends = reach[np.concatenate([gaps - 1, [len(spans) - 1]])]
    return np.stack([starts, ends], axis=1)


def _without(spans: np.ndarray, holes: np.ndarray) -> np.ndarray:
    """The part of `spans` outside `holes`; both united, shape (n, 2)."""
    # Every edge of either set cuts the line. A piece stays if it lies in `spans`, not in `holes`.
    edges = np.unique(np.concatenate([spans.ravel(), holes.ravel()]))
    pieces = np.stack([edges[:-1], edges[1:]], axis=1)
    return united(pieces[_inside(pieces[:, 0], spans) & ~_inside(pieces[:, 0], holes)])


def _inside(points: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Whether each of `points` lies in an interval of `spans`, which are united."""
    before = np.searchsorted(spans[:, 0], points, side="right") - 1
    inside: np.ndarray = (before >= 0) & (points < spans[np.maximum(before, 0), 1])
    return inside
