"""The Kafka topics of a source: names, and families of topics whose names change.

ZTF makes a topic for each night, ``ztf_20260629_programid1``, and Rubin one for each version of its
schema, ``lsst-alerts-v11``. The name of a family has a placeholder for what changes:

``{YYYYMMDD}``
    A date in UTC. The topics of the last `DAYS` days are read; of ten days with ``{YYYYMMDD:10}``.
``{n}``
    A version, as 11 or 7.4. The newest `VERSIONS` are read; the newest three with ``{n:3}``.

A name or family behind a ``!`` is not read, and nobody is warned of that.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import NamedTuple, Self

DAYS, VERSIONS = 7, 2
SILENT_NIGHTS = 2
EARLY_DAYS = 1  # so much sooner than its date a topic may be made
NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # as Kafka has it
_PART = r"[a-zA-Z0-9._-]*"
_TEMPLATE = re.compile(rf"({_PART})\{{(YYYYMMDD|n)(?::([1-9][0-9]{{0,2}}))?\}}({_PART})")
_DATE, _VERSION = r"([0-9]{8})", r"([0-9]{1,9}(?:\.[0-9]{1,9})*)"
_DIGITS = re.compile(r"[0-9]+")
_IN_A_NAME = {
    "YYYYMMDD": re.compile(rf"(?<![0-9]){_DATE}(?![0-9])"),
    "n": re.compile(rf"{_VERSION}(?!.*[0-9])"),
}
Place = tuple[int, ...]
"""Where a topic stands in its family: its date as one number, or the numbers of its version."""


class TopicFamily(NamedTuple):
    """Topics whose names differ by a date or a version.

    Attributes
    ----------
    before, after
        What stands around the placeholder.
    kind
        YYYYMMDD or n.
    window
        Days before today of which topics are read, or newest versions.
    """

    before: str
    after: str
    kind: str
    window: int

    @property
    def template(self) -> str:
        """The family's name, ``ztf_{YYYYMMDD}_programid1``: without its window."""
        return f"{self.before}{{{self.kind}}}{self.after}"

    def place(self, topic: str) -> Place | None:
        """Where a topic stands in the family; None if it is not of the family."""
        if not topic.startswith(self.before) or not topic.endswith(self.after):
            return None
        middle = topic[len(self.before) : len(topic) - len(self.after)]
        matched = re.fullmatch(_DATE if self.kind == "YYYYMMDD" else _VERSION, middle)
        return _place(self.kind, matched[1]) if matched else None

    def current(self, topics: Collection[str], today: date) -> set[str]:
        """Those of the topics that are in the family's window."""
        placed = {topic: place for topic in topics if (place := self.place(topic)) is not None}
        if self.kind == "YYYYMMDD":
            first, last = today.toordinal() - self.window, today.toordinal() + EARLY_DAYS
            return {topic for topic, (day,) in placed.items() if first <= day <= last}
        newest = sorted(set(placed.values()))[-self.window :]
        return {topic for topic, place in placed.items() if place in newest}

    def siblings(self) -> "re.Pattern[str]":
        """Names that differ from the family's in other numbers too, ``ztf_20260629_programid2``."""
        before, after = (
            r"[0-9]+".join(map(re.escape, _DIGITS.split(part)))
            for part in (self.before, self.after)
        )
        return re.compile(f"({before}){_DATE if self.kind == 'YYYYMMDD' else _VERSION}({after})")


class Topics(NamedTuple):
    """What is read of Kafka: topics by name, and families of topics."""

    names: tuple[str, ...] = ()
    families: tuple[TopicFamily, ...] = ()
    ignored_names: frozenset[str] = frozenset()
    ignored_families: tuple[TopicFamily, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """The topics of a comma-separated list. Raises ValueError."""
        names: list[str] = []
        families: list[TopicFamily] = []
        ignored: list[str | TopicFamily] = []
        for each in filter(None, re.split(r"[,\s]+", text)):
            topic = _parse(each.removeprefix("!"))
            if each.startswith("!"):
                ignored.append(topic)
            elif isinstance(topic, str):
                names.append(topic)
            else:
                families.append(topic)
        return cls(
            tuple(dict.fromkeys(names)),
            tuple(dict.fromkeys(families)),
            frozenset(each for each in ignored if isinstance(each, str)),
            tuple(each for each in ignored if not isinstance(each, str)),
        )

    def __bool__(self) -> bool:
        return bool(self.names or self.families)

    def __str__(self) -> str:
        return ", ".join((*self.names, *(family.template for family in self.families)))

    def without(self, names: Collection[str]) -> Self:
        """The same but for these names."""
        return self._replace(names=tuple(name for name in self.names if name not in names))

    def beside(self, others: Self) -> Self:
        """The same, and those that others read are known."""
        return self._replace(
            ignored_names=self.ignored_names | set(others.names),
            ignored_families=(*self.ignored_families, *others.families),
        )

    def holds(self, topic: str) -> bool:
        """Whether a topic is named, or is of a family, in its window or not."""
        return topic in self.names or self._family(topic) is not None

    def family_of(self, topic: str) -> str:
        """The template of a topic's family; the topic's own name if it is of none."""
        family = None if topic in self.names else self._family(topic)
        return family.template if family else topic

    def current(self, existing: Collection[str], now: datetime | None = None) -> set[str]:
        """The topics to read, if Kafka has those that exist: all names, and families' windows."""
        today = _today(now)
        return set(self.names).union(*(each.current(existing, today) for each in self.families))

    def in_order(self, topics: Collection[str]) -> list[str]:
        """Topics of families by their dates and versions, the oldest first."""

        def key(topic: str) -> tuple[str, Place, str]:
            family = self._family(topic)
            return self.family_of(topic), (family and family.place(topic)) or (), topic

        return sorted(topics, key=key)

    def is_first(self, topic: str, others: Collection[str]) -> bool:
        """Whether a topic is of a family, and none of the others stands before it there."""
        family = self._family(topic)
        place = family and family.place(topic)
        if family is None or place is None:
            return False
        return all(place <= (family.place(other) or place) for other in others)

    def gone(self, topic: str, existing: Collection[str]) -> bool:
        """Whether a topic of a family is not in Kafka any more.

        A login may see no topic of a family: then nothing is known of any.
        """
        family = self._family(topic)
        return (
            family is not None
            and topic not in existing
            and any(family.place(each) is not None for each in existing)
        )

    def unread(self, existing: Collection[str], now: datetime | None = None) -> Mapping[str, str]:
        """Topics beside those that are read, which nobody reads, and the template of each.

        That is a later version or date of a topic that is read by its name; and what differs from a
        family in another number than its placeholder, if a topic of the family might be as new.
        """
        return dict(self._unread(set(existing), _today(now)))

    def silent(self, existing: Collection[str], now: datetime | None = None) -> Mapping[str, str]:
        """Families that have had no topic for `SILENT_NIGHTS`, while another like theirs is new.

        Returns the newest of those others by the family's template. Bad weather makes both silent.
        """
        found = {}
        last = _today(now).toordinal() + EARLY_DAYS
        for family in self.families:
            if family.kind != "YYYYMMDD":
                continue
            alike = family.siblings()
            own, others = [0], []
            for topic in existing:
                matched = alike.fullmatch(topic)
                place = _place(family.kind, matched[2]) if matched else None
                if place is not None and family.place(topic) is not None:
                    own.append(place[0])
                elif place is not None and last - family.window <= place[0] <= last:
                    others.append((place[0], topic))
            if others and max(others)[0] - max(own) >= SILENT_NIGHTS:
                found[family.template] = max(others)[1]
        return found

    def _unread(self, existing: set[str], today: date) -> Iterator[tuple[str, str]]:
        unknown = {topic for topic in existing if not self._known(topic)}
        for family in self.families:
            alike: dict[TopicFamily, set[str]] = {}
            pattern = family.siblings()
            for topic in unknown:
                if matched := pattern.fullmatch(topic):
                    own = family._replace(before=matched[1], after=matched[3])
                    alike.setdefault(own, set()).add(topic)
            for own, topics in alike.items():
                yield from dict.fromkeys(own.current(topics, today), own.template).items()
        for name in self.names:
            mine = _family_of_name(name)
            place = mine.place(name) if mine else None
            if mine and place is not None:
                for topic in unknown:
                    if (mine.place(topic) or place) > place:
                        yield topic, mine.template

    def _family(self, topic: str) -> TopicFamily | None:
        return next((each for each in self.families if each.place(topic) is not None), None)

    def _known(self, topic: str) -> bool:
        return (
            self.holds(topic)
            or topic in self.ignored_names
            or any(each.place(topic) is not None for each in self.ignored_families)
        )


def _parse(text: str) -> str | TopicFamily:
    if NAME.fullmatch(text):
        return text
    if matched := _TEMPLATE.fullmatch(text):
        before, kind, window, after = matched.groups()
        usual = DAYS if kind == "YYYYMMDD" else VERSIONS
        return TopicFamily(before, after, kind, int(window or usual))
    raise ValueError(
        f"{text} is neither the name of a topic nor a family of topics, such as "
        "ztf_{YYYYMMDD}_programid1 or lsst-alerts-v{n}"
    )


def _place(kind: str, text: str) -> Place | None:
    if kind == "n":
        return tuple(map(int, text.split(".")))
    try:
        return (date(int(text[:4]), int(text[4:6]), int(text[6:])).toordinal(),)
    except ValueError:
        return None


def _family_of_name(name: str) -> TopicFamily | None:
    """The family that a name may be of: its date, or else its last number, is what changes."""
    for kind, pattern in _IN_A_NAME.items():
        found = pattern.search(name)
        if found and _place(kind, found[1]) is not None:
            return TopicFamily(name[: found.start()], name[found.end() :], kind, VERSIONS)
    return None


def _today(now: datetime | None) -> date:
    return (now or datetime.now(UTC)).date()
