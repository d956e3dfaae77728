"""The two sites of a simulation, what was acknowledged, and what must hold after every request."""

from collections import deque
from collections.abc import Iterable

from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.tables.checkpoint import is_checkpoint
from tests.store.simulation.contents import (
    RunContent,
    Version,
    View,
    alert_of,
    read_images,
    read_letters,
    read_places,
    read_run,
    view,
)
from tests.store.simulation.scheduler import Scheduler

RUNS = "tables/cutouts/"
PACKS = "packs/"
LETTERS = "deadletters/cutouts/"
# A stale listing is one of so many snapshots, taken after every few changes.
SNAPSHOTS, BETWEEN_SNAPSHOTS = 12, 4


class Violation(AssertionError):
    """The store broke its promise."""


class Site(MemoryObjects):
    """One store: checks every change, and remembers its past listings."""

    def __init__(self, name: str, world: "World") -> None:
        super().__init__(lambda: world.scheduler.now)
        self.name = name
        self._world = world
        self.honest = True  # as `Connection.honest`
        self._runs: dict[str, RunContent] = {}
        self._view: View | None = None
        self._changes = 0
        self._keys_there: set[str] = set()
        self.checkpoints: dict[str, bytes] = {}  # all that were ever written here
        self.past: deque[list[ObjectInfo]] = deque([[]], maxlen=SNAPSHOTS)

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        """No name may be written with two contents: readers cache footers."""
        data = bytes(data)
        if self._world.contents.setdefault(key, data) != data:
            raise Violation(f"{key} was written with two contents")
        super().put(key, data)
        self._keys_there.add(key)
        if key.startswith(RUNS):
            self._runs[key] = read_run(key, data)
        if is_checkpoint(key):
            self.checkpoints[key] = data
        if key.startswith(PACKS):
            self._world.written |= read_places(key, data)
        self._changed(key, new=True)

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        self.put(key, b"".join(pieces))

    def delete(self, key: str) -> None:
        super().delete(key)
        self._keys_there.discard(key)
        self._runs.pop(key, None)
        self._changed(key, new=False)

    def damage(self, key: str) -> None:
        """The end of an object is lost."""
        super().put(key, self._world.contents[key][:-9])

    def keys(self, prefix: str = "") -> list[str]:
        """All keys, without a request."""
        return [info.key for info in self.list(prefix)]

    def has(self, key: str) -> bool:
        """Whether there is such an object, without a request."""
        return key in self._keys_there

    def view(self) -> View:
        """The table as a perfect reader sees it now."""
        if self._view is None:
            self._view = view(self._runs.values())
        return self._view

    def _changed(self, key: str, new: bool) -> None:
        self._changes += 1
        if self._changes % BETWEEN_SNAPSHOTS == 0:
            self.past.append(list(self.list("")))
        if key.startswith(RUNS):
            self._view = None
        self._world.changed(self, key, new)


class World:
    """Both sites, and what their users were told.

    Attributes
    ----------
    acknowledged
        By alert id the greatest version whose write was acknowledged.
    offsets, letters
        The offsets acknowledged as stored, and as dead letters.
    written
        Every location that a pack ever had, with the image there.
    events
        Keys that the first site announced, and nobody has copied yet.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.contents: dict[str, bytes] = {}
        self.acknowledged: dict[int, Version] = {}
        self.offsets: set[int] = set()
        self.letters: set[int] = set()
        self.written: dict[Version, bytes] = {}
        self.events: list[str] = []
        self.first, self.second = Site("first", self), Site("second", self)

    def acknowledge(self, rows: dict[int, Version], offsets: Iterable[int]) -> None:
        """A writer was told that its batch is stored."""
        for alert, version in rows.items():
            self.acknowledged[alert] = max(version, self.acknowledged.get(alert, version))
        self.offsets |= set(offsets)
        self.check(self.first)

    def acknowledge_letters(self, offsets: Iterable[int]) -> None:
        """A writer was told that its dead letters are stored."""
        self.letters |= set(offsets)
        self.check_letters()

    def changed(self, site: Site, key: str, new: bool) -> None:
        """An object of a site was written or deleted."""
        if new and site is self.first and self.scheduler.chance.random() < 0.9:
            self.events.append(key)  # some notifications are lost
        if key.startswith((RUNS, PACKS)):
            self.check(site)
        if key.startswith(PACKS) and not new:
            self.check_images(site, key)
        if key.startswith(LETTERS) and site is self.first:
            self.check_letters()

    def check(self, site: Site) -> None:
        """A site holds what its coverage says, and the first holds what was acknowledged."""
        seen = site.view()
        for alert, (pack, _) in seen.rows.items():
            if not site.has(pack):
                raise Violation(f"{site.name}: the row of alert {alert} points to a missing {pack}")
        for offset in seen.offsets:
            if alert_of(offset) not in seen.rows:
                raise Violation(f"{site.name}: coverage has offset {offset}, no run has its row")
        if site is self.first:
            for alert, version in self.acknowledged.items():
                if seen.rows.get(alert, ("", -1)) < version:
                    raise Violation(f"the acknowledged row of alert {alert} is in no live run")
            if missing := self.offsets - seen.offsets:
                raise Violation(f"coverage forgot the acknowledged offsets {sorted(missing)}")

    def check_images(self, site: Site, gone: str) -> None:
        """The images of a pack that was deleted are in others, each version of each alert."""
        kept = (read_images(self.contents[key]) for key in site.keys(PACKS))
        if lost := read_images(self.contents[gone]).difference(*kept):
            raise Violation(f"{site.name}: {gone} was deleted, and nothing else holds {lost}")

    def check_letters(self) -> None:
        """Every acknowledged dead letter is there, or its alert is stored."""
        held = set(self.first.view().offsets)
        for key in self.first.keys(LETTERS):
            held |= read_letters(self.contents[key])
        if missing := self.letters - held:
            raise Violation(f"the dead letters {sorted(missing)} are gone, their alerts not stored")
