"""reconcile: compares what is there with what should be, and repairs the difference.

Notifications may be lost, functions die between two steps, a second site be away for a week:
nothing depends on being told. A pass lists the stores and looks into what is new; it keeps no
state but the names of the packs it found in order, and may die at any moment.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlsplit

import structlog
import urllib3
from urllib3.exceptions import HTTPError

from stampede import metrics
from stampede.clock import now_mjd
from stampede.errors import BrokerDown, Damaged, NotFound, SetupError, StampedeError, StoreDown
from stampede.events.oidc import identified
from stampede.events.s3_events import headers_of, stored_event
from stampede.functions.replicate import count, make_replica
from stampede.settings import Settings
from stampede.store.copy import Copied
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.pack_index_check import PackIndexCheck, index
from stampede.store.packs import expired, night_of
from stampede.store.schema import CUTOUT_PACKS, CUTOUTS, THUMBNAIL_PACKS, THUMBNAILS
from stampede.store.sweep import unneeded_at_second_site

log = structlog.get_logger()

WHAT = (
    "unindexed",
    "without-thumbnails",
    "not-replicated",
    "expired",
    "superseded",
    "cut-off",
    "damaged",
)
RESENT = 500  # events sent in one pass: what is not done then is found again by the next
UPLOAD_HOURS = 24  # a copy that takes longer was left by a killed process
SEND_SECONDS = urllib3.Timeout(connect=3, read=300)  # a Broker that is slow is not down
REFUSED = 5  # events in one pass that the Broker may refuse: one for its own sake, not all
PAUSES = (5.0, 15.0, 30.0)  # seconds before a failed pass is made again


class Found(NamedTuple):
    """Something that is not as it should be: what, where, and whether it was repaired."""

    what: str
    key: str
    repaired: bool


Tell = Callable[[Found], None]


class Reconciler:
    """Looks after the store, and after the second site where there is one.

    Parameters
    ----------
    tell
        Called with everything that is found, when it was repaired.

    Raises `SetupError`.
    """

    def __init__(self, settings: Settings, tell: Tell = lambda found: None) -> None:
        self._settings = settings
        self._objects = open_objects(settings)
        self._sites = [self._objects]
        if settings.replica:
            self._sites.append(open_replica(settings))
        self._grace = timedelta(seconds=settings.grace_seconds)
        self._tell = tell
        self._telling = threading.Lock()
        self._indexed = PackIndexCheck(self._objects, CUTOUTS, self._damaged)
        self._drawn = PackIndexCheck(self._objects, THUMBNAILS, self._damaged)
        steps = {
            "packs": self._index_packs,
            "thumbnails": self._ask_for_thumbnails,
            "replica": self._catch_up,
            "retention": self._expire,
            "leftovers": self._clear,
        }
        names = [name.strip() for name in settings.reconcile.split(",") if name.strip()]
        if unknown := set(names) - set(steps):
            raise SetupError(
                f"STAMPEDE_RECONCILE: no {', '.join(unknown)}; there are {', '.join(steps)}"
            )
        self._steps = {name: steps[name] for name in names}

    def run(self, repair: bool = True, everything: bool = False) -> Counter[str]:
        """One pass; how many of each kind were found.

        Without `repair` nothing is changed; with `everything` packs of whatever age are looked
        into. Raises what a step raised, when the other steps are done.
        """
        begin = time.perf_counter()
        self._repair, self._everything = repair, everything
        self._now = datetime.now(UTC)
        self._found = Counter[str]()
        failed: StampedeError | None = None
        for name, step in self._steps.items():
            try:
                step()
            except StampedeError as error:
                log.error("reconciling failed", step=name, outcome=error.name, why=error.message)
                failed = error
        for what in WHAT:
            metrics.RECONCILE_FOUND.labels(what).set(self._found[what])
        metrics.RECONCILE_PASSES.labels(failed.name if failed else "done").inc()
        milliseconds = round(1000 * (time.perf_counter() - begin))
        log.info("reconciled", repair=repair, found=dict(self._found), milliseconds=milliseconds)
        if failed:
            raise failed
        return self._found

    # -- what each step looks for, and does about it

    def _index_packs(self) -> None:
        """Packs that no run points into: a crash came between the two."""
        for info in self._indexed.lacking(self._packs()):
            try:
                if self._repair:
                    index(self._objects, info.key)
                self._note("unindexed", info.key)
            except NotFound:
                continue  # past its retention by now
            except Damaged:
                self._damaged(info.key)

    def _ask_for_thumbnails(self) -> None:
        """Packs of which no thumbnails were made: their event was lost."""
        send = sender(self._settings) if self._repair and self._settings.sink else None
        refused = 0
        for info in self._drawn.lacking(self._packs()):
            sent = False
            if send and self._found["without-thumbnails"] < RESENT:
                try:
                    send(info)
                    sent = True
                except BrokerDown:
                    refused += 1
                    if refused == REFUSED:
                        raise
            self._note("without-thumbnails", info.key, sent)
        if refused:
            raise BrokerDown(f"{self._settings.sink} refused {refused} events")

    def _catch_up(self) -> None:
        """Whatever the second site lacks."""
        if not self._settings.replica:
            return
        replica = make_replica(self._settings)

        def brought(key: str, copied: Copied) -> None:
            count(key, copied)
            self._note("not-replicated", key)

        try:
            if self._repair:
                replica.catch_up(brought)
            else:
                for info in replica.missing():
                    self._note("not-replicated", info.key)
        finally:
            replica.close()

    def _expire(self) -> None:
        """Packs past their retention, at every site."""
        days, today = self._settings.cutout_days, now_mjd()
        if days is None:
            return
        for site in self._sites:
            for spec in (CUTOUT_PACKS, THUMBNAIL_PACKS):
                for info in site.list(f"{spec.prefix}/"):
                    # Nights have five digits: in the order of keys they are in their own.
                    if not expired(info.key, days, today):
                        break
                    self._remove("expired", site, info.key)

    def _clear(self) -> None:
        """What nobody needs: uploads that were cut off, runs merged at the second site."""
        if self._repair:
            for site in self._sites:
                for _ in range(site.forget_uploads(self._now - timedelta(hours=UPLOAD_HOURS))):
                    self._note("cut-off", "an upload")
        for site in self._sites[1:]:
            for key in unneeded_at_second_site(self._objects, site, self._now, self._grace):
                self._remove("superseded", site, key)

    # -- how

    def _packs(self) -> Iterator[ObjectInfo]:
        """The packs to look into: those stored lately, but for those of flushes under way."""
        latest = self._now - self._grace
        earliest = self._now - timedelta(days=self._settings.reconcile_days)
        for info in self._objects.list(f"{CUTOUT_PACKS.prefix}/"):
            if (
                night_of(info.key) is not None
                and not expired(info.key, self._settings.cutout_days, now_mjd())
                and info.modified <= latest
                and (self._everything or info.modified >= earliest)
            ):
                yield info

    def _damaged(self, key: str) -> None:
        self._note("damaged", key, False)

    def _remove(self, what: str, site: Objects, key: str) -> None:
        if self._repair:
            site.delete(key)
        self._note(what, key)

    def _note(self, what: str, key: str, repaired: bool = True) -> None:
        repaired = repaired and self._repair
        with self._telling:
            self._found[what] += 1
            self._tell(Found(what, key, repaired))
        if repaired:
            metrics.RECONCILE_REPAIRED.labels(what).inc()


def patiently(
    once: Callable[[], object],
    tell: Callable[[StampedeError, float], None],
    pauses: Sequence[float] = PAUSES,
) -> None:
    """A pass; made again, after a pause, while a store or the Broker is away or too busy.

    For whoever is not asked again by a timer. `tell` is given each failure and the pause after
    it. Raises what the last pass raised.
    """
    for pause in pauses:
        try:
            once()
            return
        except (StoreDown, BrokerDown) as error:
            tell(error, pause)
            time.sleep(pause)
    once()


def sender(settings: Settings) -> Callable[[ObjectInfo], None]:
    """What sends the event of a stored object to the sink: the Broker, as the relay does.

    It raises `BrokerDown`.
    """
    http = urllib3.PoolManager(retries=urllib3.Retry(2, backoff_factor=0.2), timeout=SEND_SECONDS)
    bucket = urlsplit(settings.store).path.strip("/").rpartition("/")[2]

    def send(info: ObjectInfo) -> None:
        event = stored_event(bucket, settings.region, info.key, info.size, info.etag, info.modified)
        headers = identified(headers_of(event), settings.sink_token)
        try:
            answer = http.request("POST", settings.sink, body=event.data, headers=headers)
        except HTTPError as error:
            raise BrokerDown(f"{settings.sink} does not answer: {error}") from error
        if answer.status >= 300:
            raise BrokerDown(f"{settings.sink} answered {answer.status} at {info.key}")

    return send
