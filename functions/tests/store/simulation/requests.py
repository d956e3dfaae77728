"""The connection of an actor to a site: its requests fail, land late or twice, or lie."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from stampede.errors import NotFound, StoreDown
from stampede.store.objects.object_store import Folder, ObjectInfo
from tests.store.simulation.scheduler import Actor, Request
from tests.store.simulation.world import Site, World

A = TypeVar("A")


@dataclass(frozen=True)
class Faults:
    """How likely each fault is, per request.

    Attributes
    ----------
    before
        The request fails and has no effect.
    after
        It takes effect, and the response is lost.
    late
        It fails, and takes effect some time later.
    twice
        It takes effect, and once more some time later.
    omit
        A page of a listing lacks a key.
    stale
        A page of a listing is of some time ago.
    lost
        A write is acknowledged and was not made. Only where the protocol reads it back.
    """

    before: float = 0.0
    after: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    omit: float = 0.0
    stale: float = 0.0
    lost: float = 0.0


class Connection:
    """`Objects` of one actor at one site."""

    def __init__(
        self, world: World, site: Site, actor: Actor, faults: Faults, reads_back: bool = False
    ) -> None:
        self._world, self._site, self._actor = world, site, actor
        self._faults = faults
        self._reads_back = reads_back
        self._scheduler = world.scheduler
        self.honest = True
        """Whether, since this was last set, every listing was complete and current, and no object
        failed twice in turn: a table leaves that out, and says so."""
        self._failed: set[tuple[str, str]] = set()

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        data = bytes(data)
        lost = self._faults.lost if self._reads_back else 0.0
        self._write("put", key, lambda: self._site.put(key, data), lost)

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        self.put(key, b"".join(pieces))

    def delete(self, key: str) -> None:
        self._write("delete", key, lambda: self._site.delete(key), 0.0)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._read("get", key, lambda: self._site.get(key, start, length))

    def head(self, key: str) -> ObjectInfo:
        return self._read("head", key, lambda: self._site.head(key))

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        more = True
        while more:
            page, after, more = self._read(
                "list", prefix, partial(self._page, prefix, after), lambda answer: answer[0]
            )
            yield from page

    def list_folder(self, folder: str) -> Folder:
        return self._read("list_folder", folder, lambda: self._site.list_folder(folder))

    def forget_uploads(self, before: datetime) -> int:
        return 0

    def now(self) -> datetime:
        return self._site.now()

    def _page(self, prefix: str, after: str) -> tuple[list[ObjectInfo], str, bool]:
        """A page of a listing, where the next one starts, and whether there is one."""
        chance = self._scheduler.chance
        infos: Iterable[ObjectInfo] = self._site.list(prefix, after)
        if self._happens(self._faults.stale):
            self.honest = False
            past = chance.choice(self._site.past)
            infos = (info for info in past if info.key.startswith(prefix) and info.key > after)
        size = chance.choice((1, 2, 5, 20))
        page = list(itertools.islice(infos, size))
        last = page[-1].key if page else after
        more = len(page) == size
        if page and self._happens(self._faults.omit):
            self.honest = False
            page.pop(chance.randrange(len(page)))
        return page, last, more

    def _read(
        self,
        operation: str,
        key: str,
        read: Callable[[], A],
        shown: Callable[[A], Sequence[ObjectInfo]] = lambda response: (),
    ) -> A:
        self._actor.pause(operation, key)
        if self._happens(self._faults.before):
            self._log(operation, key, "failed")
            self.honest &= (operation, key) not in self._failed
            self._failed.add((operation, key))
            raise StoreDown(f"simulated: {operation} failed")
        self._failed.discard((operation, key))
        try:
            response = read()
        except NotFound:
            self._log(operation, key, "not found")
            raise
        self._log(operation, key, " ".join(info.key for info in shown(response)))
        return response

    def _write(self, operation: str, key: str, effect: Callable[[], None], lost: float) -> None:
        self._actor.pause(operation, key)
        kinds = [("before", self._faults.before), ("after", self._faults.after)]
        kinds += [("late", self._faults.late), ("twice", self._faults.twice), ("lost", lost)]
        kind = next((name for name, likely in kinds if self._happens(likely)), "")
        self._log(operation, key, kind)
        if kind in ("late", "twice"):
            self._scheduler.land_later(lambda: self._land(operation, key, effect))
        if kind in ("", "after", "twice"):
            effect()
        if kind in ("before", "after", "late"):
            raise StoreDown(f"simulated: {operation} failed ({kind})")

    def _land(self, operation: str, key: str, effect: Callable[[], None]) -> None:
        self._log(operation, key, "lands now")
        effect()

    def _happens(self, likely: float) -> bool:
        return likely > 0 and self._scheduler.chance.random() < likely

    def _log(self, operation: str, key: str, outcome: str) -> None:
        step = self._scheduler.step
        site, actor = self._site.name, self._actor.name
        self._scheduler.trace.append(Request(step, actor, site, operation, key, outcome))
