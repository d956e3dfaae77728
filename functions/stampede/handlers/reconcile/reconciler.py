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
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, islice, product

from stampede.config.settings import Settings
from stampede.errors import BrokerDown, Damaged, NotFound, SetupError, StampedeError, StoreDown
from stampede.handlers.reconcile import bucket_usage, certificates
from stampede.handlers.reconcile.checkpoints import keep_checkpoints
from stampede.handlers.reconcile.findings import NOT_REPLICATED, Copies, Findings, Report
from stampede.handlers.reconcile.histories import compare_histories
from stampede.handlers.reconcile.moving import derive_moving
from stampede.handlers.reconcile.night_rounds import DECISIVE, LISTING, NightRounds, Portion
from stampede.handlers.reconcile.notification_guard import NotificationGuard
from stampede.handlers.reconcile.positions import derive_positions
from stampede.handlers.reconcile.proofs import make_proofs
from stampede.handlers.reconcile.repair import Repairer
from stampede.handlers.reconcile.resend import Resender
from stampede.handlers.reconcile.retention import checked_time, nights_past
from stampede.handlers.reconcile.store_check import check_stores
from stampede.handlers.replicate import count, make_replica
from stampede.runtime.clock import mjd
from stampede.store.compaction.garbage_collection import unneeded_at_second_site
from stampede.store.integrity.unindexed_packs import PackIndexCheck, index
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.pack_name import night_of
from stampede.store.packs.retention import Retention
from stampede.store.replication.copy import Copied
from stampede.store.runs.schema import CUTOUT_PACKS, PACK_SPECS, PACKET_PACKS, THUMBNAILS, PackSpec
from stampede.telemetry import reconcile_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

MOST_RESENT = 500  # events sent in one pass
MOST_REFUSED = 5  # events that the Broker refuses in one pass, before the step gives up
SITES = ("store", "replica")
LONG = ("moving", "histories")
"""Steps that do not list folders of nights, and may take long."""
UPLOAD_HOURS = 24  # an older upload was left by a killed process


class OutOfTime(Exception):
    """The time of a step is over."""


class Pass:
    """One pass: what it may do, what it found, and how far it came.

    Attributes
    ----------
    repair
        Whether it may change anything.
    everything
        Whether it looks at all nights, and at packs of any age.
    now
        When it began, by the clock here.
    portion
        The portion of the stores that it looks at; None until a step has asked for it.
    goes_on
        Whether the next pass goes on with other nights, and need not look at these again.
    step_end
        When the present step ends, by `time.monotonic`.
    """

    def __init__(self, rounds: NightRounds, report: Report, repair: bool, everything: bool) -> None:
        self._rounds = rounds
        self.repair, self.everything = repair, everything
        self.now = datetime.now(UTC)
        self.findings = Findings(repair, report, self._check_time)
        self.portion: Portion | None = None
        self.goes_on = repair
        self.step_end = math.inf

    @property
    def has_time(self) -> bool:
        """Whether the present step may take as long as it takes."""
        return self.step_end == math.inf

    @property
    def keys(self) -> int:
        """How many keys it has listed to choose its portion."""
        return self.portion.folders.listed if self.portion else 0

    def choose(self) -> Portion:
        """The portion of the stores that it looks at; the same in all steps."""
        self.portion = self.portion or self._rounds.choose(self.everything)
        return self.portion

    def delete(self, kind: str, site: Objects, key: str) -> None:
        """Delete an object, if it may, and add the finding."""
        if self.repair:
            site.delete(key)
        self.findings.add(kind, key)

    def save(self) -> None:
        """Save how far the round is, if the next pass goes on."""
        if self.portion and self.goes_on:
            self._rounds.save(self.portion)

    def _check_time(self) -> None:
        """Called after each repair, so that every pass makes at least one of each kind."""
        if time.monotonic() > self.step_end:
            raise OutOfTime


Step = Callable[[Pass], object]


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
        self._sites = [self._objects, *([open_replica(settings)] if settings.replica else ())]
        self._grace = timedelta(seconds=settings.grace_seconds)
        self._retention = Retention.of(settings)
        self._index_checks = [
            (spec, PackIndexCheck(self._objects, spec.locations))
            for spec in (CUTOUT_PACKS, PACKET_PACKS)
        ]
        self._thumbnails_check = PackIndexCheck(self._objects, THUMBNAILS)
        self._guard = NotificationGuard(settings, self._objects)
        steps: dict[str, Step] = {
            # Before all: what stores alerts depends on it.
            "notifications": lambda current: self._guard.check(current.repair),
            # Before the pass has the store busy.
            "store-check": lambda current: check_stores(self._sites, settings, current.repair),
            # Before packs are deleted: their alerts are in the proof of their night.
            "proofs": lambda current: make_proofs(
                self._objects, settings, current.repair, current.everything
            ),
            # Then: even if a pass runs out of time, it has deleted what nothing needs.
            "retention": self._delete_expired,
            "restore": self._restore,
            "packs": self._index_packs,
            "thumbnails": self._request_thumbnails,
            **_steps_that_derive(self._objects, settings),
            "replica": self._copy_to_replica,
            "leftovers": self._delete_leftovers,
            "checkpoints": self._keep_checkpoints,
            # Last: it only looks, and takes long once a day.
            "histories": lambda current: compare_histories(
                self._objects, settings, current.repair, current.everything, current.step_end
            ),
        }
        self._steps = _chosen(steps, settings.reconcile)
        self._rounds = NightRounds.of_steps(settings, self._sites, self._steps)
        self._last: Pass | None = None

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
        begin, end = time.perf_counter(), time.monotonic() + seconds
        self._last = current = Pass(self._rounds, self._report, repair, everything)
        failed = self._take_steps(current, end)
        current.findings.show()
        reconcile_metrics.RECONCILE_LISTED.set(current.keys)
        certificates.measure(self._settings)
        bucket_usage.measure(self._settings)
        reconcile_metrics.RECONCILE_PASSES.labels(failed.name if failed else "done").inc()
        counts = current.findings.counts
        log.info(
            "reconciled",
            repair=repair,
            to_end=current.goes_on or not repair,
            found=dict(counts),
            keys=current.keys,
            milliseconds=round(1000 * (time.perf_counter() - begin)),
        )
        if failed:
            raise failed
        return counts

    @property
    def looked_at_all(self) -> bool:
        """Whether the last pass looked at all nights."""
        return not self._last or self._last.portion is None or self._last.portion.whole

    @property
    def copies(self) -> Copies:
        """What the last pass copied from one site to the other."""
        return self._last.findings.copies if self._last else Copies()

    def _take_steps(self, current: Pass, end: float) -> StampedeError | None:
        """Take all steps until `end`, then save how far the pass came; return the last error."""
        failed: StampedeError | None = None
        for name, step in [*self._steps.items(), ("state", Pass.save)]:
            current.step_end = self._end_of_step(name, end)
            failed = _take_step(name, step, current) or failed
        return failed

    def _end_of_step(self, name: str, end: float) -> float:
        """When a step that begins now ends: if it lists, after an equal share of what is left."""
        if name in LONG and end < math.inf:  # a pass has twice the time for all
            return time.monotonic() + self._settings.reconcile_seconds / 2
        listing = [each for each in self._steps if each in LISTING]
        if name not in listing:
            return math.inf
        share = 1 / (len(listing) - listing.index(name))
        return time.monotonic() + (end - time.monotonic()) * share

    # -- the steps

    def _index_packs(self, current: Pass) -> None:
        """Index packs that the table lacks: a function crashed between pack and run."""
        damaged = partial(self._add_damaged, current)
        for info in chain.from_iterable(
            check.lacking(self._packs(current, spec), damaged) for spec, check in self._index_checks
        ):
            try:
                if current.repair:
                    index(self._objects, info.key)
                current.findings.add("unindexed", info.key)
            except NotFound:
                continue  # its retention ended meanwhile
            except Damaged:
                damaged(info.key)

    def _request_thumbnails(self, current: Pass) -> None:
        """Send the events of packs without thumbnails again: their event was lost.

        What is not sent, or does not help, is found again in the next round over the nights: the
        other steps must not wait for it.
        """
        resender = Resender(self._settings) if current.repair and self._settings.sink else None
        refused = 0
        packs = self._packs(current, CUTOUT_PACKS, twice=True)
        for info in self._thumbnails_check.lacking(packs, partial(self._add_damaged, current)):
            sent = False
            if resender and current.findings.counts["without-thumbnails"] < MOST_RESENT:
                try:
                    resender.send(info)
                    sent = True
                except BrokerDown:
                    refused += 1
                    if refused == MOST_REFUSED:
                        raise
            current.findings.add("without-thumbnails", info.key, sent)
        if refused:
            raise BrokerDown(f"{self._settings.sink} refused {refused} events")

    def _restore(self, current: Pass) -> None:
        """Restore what one site lost or has damaged from the other."""
        for repairer in self._repairers(current):
            repairer.repair(current.choose().list)

    def _repairers(self, current: Pass) -> Iterator[Repairer]:
        for second in self._sites[1:]:
            repairer = Repairer(
                self._objects,
                second,
                current.findings,
                current.repair,
                self._retention.expired,
                follow=self._grace if self._settings.orphan_days else None,
                rights=self._retention.rights,
            )
            try:
                yield repairer
            finally:
                repairer.close()

    def _copy_to_replica(self, current: Pass) -> None:
        """Copy what the second site lacks."""
        if not self._settings.replica:
            return
        replica = make_replica(self._settings)

        now = self._objects.now()  # `modified` is by the store's clock too

        def found(info: ObjectInfo) -> None:
            young = info.modified > now - self._grace
            current.findings.add(NOT_REPLICATED, info.key, young=young)

        def copied(info: ObjectInfo, copy: Copied) -> None:
            count(info.key, copy)
            if copy.moved:
                current.findings.add_copy(copy.bytes)
            found(info)

        try:
            if current.repair:
                replica.catch_up(copied, current.choose().list)
            else:
                for info in replica.missing(current.choose().list):
                    found(info)
        finally:
            replica.close()

    def _delete_expired(self, current: Pass) -> None:
        """Delete packs past their retention, at every site."""
        most = self._settings.retention_nights
        days = {name: self._retention.days(f"{name}/") for name in PACK_SPECS}
        if all(each is None for each in days.values()):
            return
        times = [checked_time(site, name) for site, name in zip(self._sites, SITES, strict=False)]
        for site, (name, spec) in product(self._sites, PACK_SPECS.items()):
            due = nights_past(site, spec, days[name], mjd(min(times)))
            for info in chain.from_iterable(islice(due, most if current.repair else None)):
                current.delete("expired", site, info.key)
            for later in islice(due, 1):
                log.warning("more nights are past their retention: the next pass goes on", at=most)
                current.findings.add("expired", later[0].key, repaired=False)

    def _delete_leftovers(self, current: Pass) -> None:
        """Delete runs of the second site that a merge has replaced; abort interrupted uploads."""
        for site in self._sites[1:]:
            for key in unneeded_at_second_site(
                self._objects,
                site,
                current.now,
                self._grace,
                lambda key: current.findings.add("damaged", key, repaired=False),
                self._retention.rights,
            ):
                current.delete("superseded", site, key)
        if current.repair:
            for site, name in zip(self._sites, SITES, strict=False):
                self._forget_uploads(current, site, name)

    def _forget_uploads(self, current: Pass, site: Objects, name: str) -> None:
        try:
            number = site.forget_uploads(site.now() - timedelta(hours=UPLOAD_HOURS))
        except StoreDown as error:
            # A site that pulls may have a key of the first site that only reads.
            log.warning("interrupted uploads not deleted", site=name, why=error.message)
            return
        for _ in range(number):
            current.findings.add("cut-off", "an upload")

    def _keep_checkpoints(self, current: Pass) -> None:
        """Write checkpoints of the second site, where `compact` need not run."""
        for site in self._sites[1:] if current.repair else ():
            keep_checkpoints(site, self._grace)

    # -- what the steps share

    def _packs(self, current: Pass, spec: PackSpec, twice: bool = False) -> Iterator[ObjectInfo]:
        """The packs of a kind to check: new ones, but not of batches that may be in progress.

        With `twice` those too that were new to the round before.
        """
        portion, latest = current.choose(), current.now - self._grace
        earliest = current.now - timedelta(days=self._settings.reconcile_days)
        if since := portion.since_before if twice else portion.since:
            # An earlier night may have waited for its turn longer than that.
            earliest = min(earliest, since - self._grace)
        for info in portion.list(self._objects, f"{spec.prefix}/"):
            if (
                night_of(info.key) is not None
                and not self._retention.expired(info.key)
                and info.modified <= latest
                and (current.everything or info.modified >= earliest)
            ):
                yield info

    def _add_damaged(self, current: Pass, key: str) -> None:
        repaired = [repairer.repair_key(key) for repairer in self._repairers(current)]
        if not repaired:
            current.findings.add("damaged", key, repaired=False)


def _steps_that_derive(objects: Objects, settings: Settings) -> dict[str, Step]:
    """The steps that derive tables out of what is stored."""
    return {
        "positions": lambda current: current.findings.add_each(
            "without-positions", derive_positions(objects, current.repair)
        ),
        "moving": lambda current: current.findings.add_each(
            "without-observations",
            derive_moving(objects, settings, current.repair, current.has_time),
        ),
    }


def _chosen(steps: Mapping[str, Step], setting: str) -> dict[str, Step]:
    """The steps that a setting names, in their order. Raises `SetupError` if there is none so."""
    names = [name.strip() for name in setting.split(",") if name.strip()]
    if unknown := set(names) - set(steps):
        raise SetupError(
            f"STAMPEDE_RECONCILE: no {', '.join(unknown)}; there are {', '.join(steps)}"
        )
    return {name: step for name, step in steps.items() if name in names}


def _take_step(name: str, step: Step, current: Pass) -> StampedeError | None:
    """Take one step of a pass; return its error.

    If it does not come to its end, the next pass may have to look at the same nights.
    """
    try:
        step(current)
    except OutOfTime:
        log.warning("a step goes on in the next pass", step=name)
        current.goes_on = current.goes_on and name not in DECISIVE
    except StampedeError as error:
        log.error("reconciling failed", step=name, outcome=error.name, why=error.message)
        if name in DECISIVE and not isinstance(error, Damaged):
            current.goes_on = False
        return error
    return None
