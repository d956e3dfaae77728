"""reconcile: compares the stores with what they should hold, and repairs the difference.

Notifications get lost, functions die between two steps, a second site may be away for a week: so
nothing depends on notifications alone. A pass lists a portion of the stores, the latest nights and
some of the others (`night_rounds`), and checks what is new. It may die at any time: then the next
pass looks at the same portion. The function's passes end in time by themselves: Knative would abort
a longer one, and its findings would not be counted.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, islice, product

from stampede.config.settings import Settings
from stampede.errors import BrokerDown, Damaged, NotFound, SetupError, StampedeError, StoreDown
from stampede.handlers.reconcile import bucket_usage, certificates
from stampede.handlers.reconcile.checkpoints import keep_checkpoints
from stampede.handlers.reconcile.findings import NOT_REPLICATED, Copies, Findings, Report
from stampede.handlers.reconcile.night_rounds import DECISIVE, LISTING, NightRounds, Portion
from stampede.handlers.reconcile.positions import derive_positions
from stampede.handlers.reconcile.resend import Resender
from stampede.handlers.reconcile.restore import Restorer
from stampede.handlers.reconcile.retention import checked_time, nights_past
from stampede.handlers.replicate import count, make_replica
from stampede.runtime.clock import mjd
from stampede.store.compaction.garbage_collection import unneeded_at_second_site
from stampede.store.integrity.unindexed_packs import PackIndexCheck, index
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.pack import night_of
from stampede.store.packs.retention import Retention
from stampede.store.replication.copy import Copied
from stampede.store.runs.schema import CUTOUT_PACKS, PACK_SPECS, PACKET_PACKS, THUMBNAILS, PackSpec
from stampede.telemetry import metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

MOST_RESENT = 500  # events sent in one pass
MOST_REFUSED = 5  # events that the Broker refuses in one pass, before the step gives up
SITES = ("store", "replica")
UPLOAD_HOURS = 24  # an older upload was left by a killed process


class OutOfTime(Exception):
    """The time of a step is over."""


class Reconciler:
    """Checks and repairs the store, and the second site if there is one.

    Parameters
    ----------
    report
        Called with each finding, after its repair. It may be called in any thread.

    Raises
    ------
    SetupError
        STAMPEDE_RECONCILE names an unknown step, or a store's address is wrong.
    """

    def __init__(self, settings: Settings, report: Report = lambda finding: None) -> None:
        self._settings = settings
        self._report = report
        self._objects = open_objects(settings)
        self._sites = [self._objects]
        if settings.replica:
            self._sites.append(open_replica(settings))
        self._grace = timedelta(seconds=settings.grace_seconds)
        self._retention = Retention.of(settings)
        self._index_checks = [
            (spec, PackIndexCheck(self._objects, spec.locations, self._add_damaged))
            for spec in (CUTOUT_PACKS, PACKET_PACKS)
        ]
        self._thumbnails_check = PackIndexCheck(self._objects, THUMBNAILS, self._add_damaged)
        steps = {
            # First: even if a pass runs out of time, it has deleted what nothing needs.
            "retention": self._delete_expired,
            "restore": self._restore,
            "packs": self._index_packs,
            "thumbnails": self._request_thumbnails,
            "positions": self._derive_positions,
            "replica": self._copy_to_replica,
            "leftovers": self._delete_leftovers,
            "checkpoints": self._keep_checkpoints,
        }
        names = [name.strip() for name in settings.reconcile.split(",") if name.strip()]
        if unknown := set(names) - set(steps):
            raise SetupError(
                f"STAMPEDE_RECONCILE: no {', '.join(unknown)}; there are {', '.join(steps)}"
            )
        self._steps = {name: step for name, step in steps.items() if name in names}
        self._rounds = NightRounds.of_steps(settings, self._sites, self._steps)
        self._portion: Portion | None = None
        self._step_end = math.inf

    def run(
        self, repair: bool = True, everything: bool = False, seconds: float = math.inf
    ) -> Counter[str]:
        """Make one pass; return how many findings there are of each kind.

        Steps that list the stores repair for `seconds` together: each has an equal share of what is
        left. Then the next pass looks at the same nights, and goes on.

        Without `repair` nothing is changed. With `everything` all nights are looked at, and packs
        of any age are checked. If a step fails, the other steps run first; then its error is
        raised.
        """
        begin = time.perf_counter()
        end = time.monotonic() + seconds
        listing = [name for name in self._steps if name in LISTING]
        self._repair, self._everything = repair, everything
        self._now = datetime.now(UTC)
        self._findings = Findings(repair, self._report, self._check_time)
        # Whether the next pass goes on with other nights, and need not look at these again.
        self._portion, self._goes_on = None, repair
        failed: StampedeError | None = None
        for name, step in [*self._steps.items(), ("state", self._save_state)]:
            self._step_end = math.inf
            if name in listing:
                share = 1 / (len(listing) - listing.index(name))
                self._step_end = time.monotonic() + (end - time.monotonic()) * share
            try:
                step()
            except OutOfTime:
                log.warning("a step goes on in the next pass", step=name)
                self._goes_on = self._goes_on and name not in DECISIVE
            except StampedeError as error:
                log.error("reconciling failed", step=name, outcome=error.name, why=error.message)
                failed = error
                if name in DECISIVE and not isinstance(error, Damaged):
                    self._goes_on = False
        self._findings.show()
        listed = self._portion.folders.listed if self._portion else 0
        metrics.RECONCILE_LISTED.set(listed)
        certificates.measure(self._settings)
        bucket_usage.measure(self._settings)
        metrics.RECONCILE_PASSES.labels(failed.name if failed else "done").inc()
        counts = self._findings.counts
        log.info(
            "reconciled",
            repair=repair,
            to_end=self._goes_on or not repair,
            found=dict(counts),
            keys=listed,
            milliseconds=round(1000 * (time.perf_counter() - begin)),
        )
        if failed:
            raise failed
        return counts

    @property
    def looked_at_all(self) -> bool:
        """Whether the last pass looked at all nights."""
        return self._portion is None or self._portion.whole

    @property
    def copies(self) -> Copies:
        """What the last pass copied from one site to the other."""
        return self._findings.copies

    # -- the steps

    def _index_packs(self) -> None:
        """Index packs that the table lacks: a function crashed between pack and run."""
        for info in chain.from_iterable(
            check.lacking(self._packs(spec)) for spec, check in self._index_checks
        ):
            try:
                if self._repair:
                    index(self._objects, info.key)
                self._findings.add("unindexed", info.key)
            except NotFound:
                continue  # its retention ended meanwhile
            except Damaged:
                self._add_damaged(info.key)

    def _request_thumbnails(self) -> None:
        """Send the events of packs without thumbnails again: their event was lost.

        What is not sent, or does not help, is found again in the next round over the nights: the
        other steps must not wait for it.
        """
        resender = Resender(self._settings) if self._repair and self._settings.sink else None
        refused = 0
        for info in self._thumbnails_check.lacking(self._packs(CUTOUT_PACKS, twice=True)):
            sent = False
            if resender and self._findings.counts["without-thumbnails"] < MOST_RESENT:
                try:
                    resender.send(info)
                    sent = True
                except BrokerDown:
                    refused += 1
                    if refused == MOST_REFUSED:
                        raise
            self._findings.add("without-thumbnails", info.key, sent)
        if refused:
            raise BrokerDown(f"{self._settings.sink} refused {refused} events")

    def _derive_positions(self) -> None:
        """Derive the positions of points that were stored without them."""
        for key, derived in derive_positions(self._objects, self._repair):
            self._findings.add("without-positions", key, derived)

    def _restore(self) -> None:
        """Restore what one site lost or has damaged from the other."""
        for restorer in self._restorers():
            restorer.restore(self._chosen().list)

    def _restorers(self) -> Iterator[Restorer]:
        for second in self._sites[1:]:
            restorer = Restorer(
                self._objects,
                second,
                self._findings,
                self._repair,
                self._retention.expired,
                follow=self._grace if self._settings.orphan_days else None,
                rights=self._retention.rights,
            )
            try:
                yield restorer
            finally:
                restorer.close()

    def _copy_to_replica(self) -> None:
        """Copy what the second site lacks."""
        if not self._settings.replica:
            return
        replica = make_replica(self._settings)

        now = self._objects.now()  # `modified` is by the store's clock too

        def found(info: ObjectInfo) -> None:
            young = info.modified > now - self._grace
            self._findings.add(NOT_REPLICATED, info.key, young=young)

        def copied(info: ObjectInfo, copy: Copied) -> None:
            count(info.key, copy)
            if copy.moved:
                self._findings.add_copy(copy.bytes)
            found(info)

        try:
            if self._repair:
                replica.catch_up(copied, self._chosen().list)
            else:
                for info in replica.missing(self._chosen().list):
                    found(info)
        finally:
            replica.close()

    def _delete_expired(self) -> None:
        """Delete packs past their retention, at every site."""
        most = self._settings.retention_nights
        days = {name: self._retention.days(f"{name}/") for name in PACK_SPECS}
        if all(each is None for each in days.values()):
            return
        times = [checked_time(site, name) for site, name in zip(self._sites, SITES, strict=False)]
        for site, (name, spec) in product(self._sites, PACK_SPECS.items()):
            due = nights_past(site, spec, days[name], mjd(min(times)))
            for info in chain.from_iterable(islice(due, most if self._repair else None)):
                self._delete("expired", site, info.key)
            for later in islice(due, 1):
                log.warning("more nights are past their retention: the next pass goes on", at=most)
                self._findings.add("expired", later[0].key, repaired=False)

    def _delete_leftovers(self) -> None:
        """Delete runs of the second site that a merge has replaced; abort interrupted uploads."""
        for site in self._sites[1:]:
            for key in unneeded_at_second_site(
                self._objects,
                site,
                self._now,
                self._grace,
                lambda key: self._findings.add("damaged", key, repaired=False),
                self._retention.rights,
            ):
                self._delete("superseded", site, key)
        if self._repair:
            for site, name in zip(self._sites, SITES, strict=False):
                self._forget_uploads(site, name)

    def _forget_uploads(self, site: Objects, name: str) -> None:
        try:
            number = site.forget_uploads(site.now() - timedelta(hours=UPLOAD_HOURS))
        except StoreDown as error:
            # A site that pulls may have a key of the first site that only reads.
            log.warning("interrupted uploads not deleted", site=name, why=error.message)
            return
        for _ in range(number):
            self._findings.add("cut-off", "an upload")

    def _keep_checkpoints(self) -> None:
        """Write checkpoints of the second site, where `compact` need not run."""
        for site in self._sites[1:] if self._repair else ():
            keep_checkpoints(site, self._grace)

    # -- what the steps share

    def _chosen(self) -> Portion:
        """The portion of the stores that this pass looks at; the same in all steps."""
        self._portion = self._portion or self._rounds.choose(self._everything)
        return self._portion

    def _check_time(self) -> None:
        """Called after each repair, so that every pass makes at least one of each kind."""
        if time.monotonic() > self._step_end:
            raise OutOfTime

    def _save_state(self) -> None:
        if self._portion and self._goes_on:
            self._rounds.save(self._portion)

    def _packs(self, spec: PackSpec, twice: bool = False) -> Iterator[ObjectInfo]:
        """The packs of a kind to check: new ones, but not of batches that may be in progress.

        With `twice` those too that were new to the round before.
        """
        portion, latest = self._chosen(), self._now - self._grace
        earliest = self._now - timedelta(days=self._settings.reconcile_days)
        if since := portion.since_before if twice else portion.since:
            # An earlier night may have waited for its turn longer than that.
            earliest = min(earliest, since - self._grace)
        for info in portion.list(self._objects, f"{spec.prefix}/"):
            if (
                night_of(info.key) is not None
                and not self._retention.expired(info.key)
                and info.modified <= latest
                and (self._everything or info.modified >= earliest)
            ):
                yield info

    def _add_damaged(self, key: str) -> None:
        mended = [restorer.mend_key(key) for restorer in self._restorers()]
        if not mended:
            self._findings.add("damaged", key, repaired=False)

    def _delete(self, kind: str, site: Objects, key: str) -> None:
        if self._repair:
            site.delete(key)
        self._findings.add(kind, key)
