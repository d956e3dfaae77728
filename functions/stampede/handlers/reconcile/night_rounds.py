"""Chooses the nights that a pass of `reconcile` looks at, and goes on where the last one ended.

A pass looks at the nights of the last days, and at as many of the others as have a bounded number
of keys. If all of them fit, as in a small store, each pass looks at everything.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Self

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.runtime.clock import mjd
from stampede.store.integrity import reconcile_state
from stampede.store.integrity.reconcile_state import RoundState
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.night_keys import NightFolders, night_of_folder, walk
from stampede.telemetry import reconcile_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

LISTING = ("restore", "packs", "thumbnails", "replica")
"""The steps of `reconcile` that list folders of nights, in their order."""
DECISIVE = ("restore", "packs", "replica")
"""Those of them that must succeed before the next nights have their turn."""
COMPARING = ("restore", "replica")
"""Those of them that list the second site too."""


class Portion(NamedTuple):
    """What one pass looks at: all outside the folders of nights, and some of these folders.

    Attributes
    ----------
    recent, in_turn
        The folders of the last nights, and of those whose turn it is.
    since
        What was stored before this time was looked at by an earlier pass, as far as is known.
    since_before
        `since` as it was in the round before.
    state
        How far the round is after this pass; None if there is nothing to remember.
    """

    folders: NightFolders
    recent: frozenset[str]
    in_turn: frozenset[str]
    since: datetime | None = None
    since_before: datetime | None = None
    state: RoundState | None = None

    @property
    def whole(self) -> bool:
        """Whether it is everything that there is."""
        return len(self.recent) + len(self.in_turn) == len(self.folders.nights)

    def list(self, site: Objects, prefix: str = "") -> Iterator[ObjectInfo]:
        """Its objects at a site, in key order; only those whose keys start with `prefix`."""
        return self.folders.list(site, self.recent | self.in_turn, prefix)


class NightRounds:
    """The rounds over the nights of some sites.

    Parameters
    ----------
    sites
        The sites that are listed. The first must answer.
    home
        The site that keeps the state.
    name
        Tells these rounds from those of other steps.
    """

    def __init__(
        self, settings: Settings, sites: Sequence[Objects], home: Objects, name: str
    ) -> None:
        self._days, self._most = settings.reconcile_days, settings.reconcile_keys
        self._sites, self._home, self._name = sites, home, name

    @classmethod
    def of_steps(cls, settings: Settings, sites: Sequence[Objects], steps: Collection[str]) -> Self:
        """The rounds of these steps of `reconcile` over the first site and perhaps a second."""
        names = [name for name in LISTING if name in steps]
        # What only pulls copies may not be allowed to write at the first site.
        home = sites[-1] if names == ["replica"] else sites[0]
        listed = sites if set(names) & set(COMPARING) else sites[:1]
        return cls(settings, listed, home, "-".join(names))

    def choose(self, everything: bool = False) -> Portion:
        """What the next pass looks at. Raises `StoreDown`."""
        sites, entries = list[Objects](), set[str]()
        for number, site in enumerate(self._sites):
            try:
                entries |= walk(site)
                sites.append(site)
            except StoreDown as error:
                # Steps that need both sites fail. The others must not wait for the second.
                if number == 0:
                    raise
                log.warning("a site does not answer", why=error.message)
        folders = NightFolders(entries)
        if everything:
            return Portion(folders, frozenset(), frozenset(folders.nights))
        now, state = self._home.now(), reconcile_state.load(self._home, self._name)
        self._show_age(state, now)
        recent = {folder for folder in folders.nights if self._is_recent(folder, mjd(now))}
        others = [folder for folder in folders.nights if folder not in recent]
        rest = [folder for folder in others if state and state.after and folder > state.after]
        under_way = state if rest else None
        rest = rest or others
        chosen = rest[: folders.fitting(sites, rest, self._most)]
        ended = len(chosen) == len(rest)
        began = under_way.began if under_way else now
        complete = state.complete if state else now
        before = state.before or state.complete if state else now
        if ended:
            later = RoundState(began, began, before=complete)
        else:
            later = RoundState(began, complete, chosen[-1], before)
        return Portion(
            folders,
            frozenset(recent),
            frozenset(chosen),
            state.complete if state else None,
            before if state else None,
            # Nights that only an absent site has were not looked at.
            None if (state is None and ended) or len(sites) < len(self._sites) else later,
        )

    def save(self, portion: Portion) -> None:
        """Remember that a pass has looked at this portion. Raises `StoreDown`."""
        if portion.state:
            reconcile_state.save(self._home, self._name, portion.state)
            self._show_age(portion.state, self._home.now())

    def _is_recent(self, folder: str, now_mjd: float) -> bool:
        night = night_of_folder(folder)
        return night is not None and int(now_mjd - self._days) <= night <= int(now_mjd) + 1

    def _show_age(self, state: RoundState | None, now: datetime) -> None:
        age = (now - state.complete).total_seconds() if state else 0.0
        reconcile_metrics.RECONCILE_ROUND_AGE.set(max(0.0, age))
