"""A campaign of random damage at two sites of a small store.

Each round damages objects, asks `read` at both sites for what those objects answer for, and lets
the deep audit find and repair them.
"""

import io
import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow.parquet as pq

from stampede.alerts.columns import KINDS
from stampede.config.settings import Settings
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.lookup.response_warnings import INCOMPLETE
from stampede.read.app import make_app
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity import ledger
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.pack_name import night_of
from stampede.store.packs.raw_alerts import PREFIX
from stampede.store.runs.run_name import digest
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, THUMBNAILS
from stampede.store.tables.checkpoint import CHECKPOINTS
from stampede.store.tables.table import Table
from tests.support.read.read_service import serving
from tests.support.store.two_sites import put_all

SITES = ("store", "replica")
EACH_ROUND = 8
ALERTS = 24
CURVE = "/v1/objects/1/lightcurve"
WAYS = ("flip", "flip", "flip", "cut", "delete", "swap")


class Damage(NamedTuple):
    """What was done to an object; a swap is two of these."""

    way: str
    site: int
    key: str


class Answer(NamedTuple):
    """A response of `read`; `incomplete` if it says that data may lack."""

    status: int
    body: bytes
    incomplete: bool


def fill(settings: Settings) -> None:
    """Store packs, thumbnails, runs of several levels and raw alerts at both sites."""
    objects = open_objects(settings)
    drawing = Thumbnails(settings)
    for number in range(ALERTS // 4):
        pack = put_all(objects, range(4 * number + 1, 4 * number + 5))
        drawing.make(pack.key)
    for _ in range(2):
        for spec in (CUTOUTS, DETECTIONS, THUMBNAILS):
            compact(Table(objects, spec), datetime.now(UTC), Policy(fanout=4, grace=timedelta()))
    data = b"PAR1 the survey's own columns"
    objects.put(f"{PREFIX}lsst/0/60000/{digest(data)}.parquet", data)
    ledger.expect(objects, "files-1", 7)
    Reconciler(settings.model_copy(update={"reconcile": "replica"})).run()
    # Each site has checkpoints of its own, which are deleted when they are damaged.
    for site in (objects, open_replica(settings)):
        for info in [*site.list(CHECKPOINTS)]:
            site.delete(info.key)


class Campaign:
    """Damages the sites of `settings`, which `fill` has filled, round by round.

    Attributes
    ----------
    done
        How many faults there were of each way.
    asked
        How many responses of `read` were compared with the truth.
    """

    def __init__(self, settings: Settings, seed: int) -> None:
        self._settings, self._dice = settings, random.Random(seed)
        self._sites: list[Objects] = [open_objects(settings), open_replica(settings)]
        self._good = [contents(site) for site in self._sites]
        self._paths = {key: _paths(key, data) for key, data in self._good[0].items()}
        self._all = sorted({path for paths in self._paths.values() for path in paths})
        self._truth = ask(settings, self._all)
        assert {response.status for response in self._truth.values()} == {200}, self._truth
        self.done: Counter[str] = Counter()
        self.asked = 0

    def run(self, faults: int) -> None:
        """Make rounds until there were so many faults. Raises `AssertionError`."""
        while self.done.total() < faults:
            self.round()

    def round(self) -> None:
        """Damage, read and repair once."""
        done: list[Damage] = []
        for _ in range(EACH_ROUND):
            way, damaged = self._damage({each.key for each in done})
            self.done[way] += 1
            done += damaged
        for number in range(len(self._sites)):
            wrong = self._wrong(number, [each for each in done if each.site == number])
            assert wrong == [], (wrong, done)
        result = deep_audit(self._settings, SITES, repair=True)
        assert {each.key for each in done} <= {fault.key for fault in result.faults}, done
        assert result.left == [], done
        for site, good in zip(self._sites, self._good, strict=True):
            assert contents(site) == good, done

    def _damage(self, hit: set[str]) -> tuple[str, list[Damage]]:
        """One random fault at objects that were not hit yet."""
        number = self._dice.randrange(len(self._sites))
        site = self._sites[number]
        keys = [info.key for info in site.list("") if info.key not in hit]
        key, other = self._dice.sample(keys, 2)
        data = bytearray(site.get(key))
        way = self._dice.choice(WAYS)
        done = [Damage(way, number, key)]
        if way == "flip":
            data[self._dice.randrange(len(data))] ^= 1 << self._dice.randrange(8)
            site.put(key, bytes(data))
        elif way == "cut":
            site.put(key, bytes(data[: self._dice.randrange(len(data))]))
        elif way == "delete":
            site.delete(key)
        else:
            site.put(key, site.get(other))
            site.put(other, bytes(data))
            done.append(Damage(way, number, other))
        return way, done

    def _wrong(self, site: int, damaged: Sequence[Damage]) -> list[tuple[str, Answer]]:
        """The wrong responses of a site: for each damaged object, and for a few others."""
        paths = {path for each in damaged for path in self._one_of_each(each.key)}
        paths |= set(self._dice.sample(self._all, 3))
        store = getattr(self._settings, SITES[site])
        responses = ask(self._settings.model_copy(update={"store": store}), sorted(paths))
        self.asked += len(responses)
        # A run that is gone leaves no trace at its site: then rows may lack, and none may differ.
        gone = {each.key.split("/")[1] for each in damaged if each.way == "delete"}
        return [
            (path, response)
            for path, response in responses.items()
            if not right(path, response, self._truth[path].body, gone)
        ]

    def _one_of_each(self, key: str) -> list[str]:
        """Paths that an object answers for: all of a pack's, and a few of a run's."""
        paths = self._paths.get(key, [])
        return paths if night_of(key) is not None else self._dice.sample(paths, min(4, len(paths)))


def right(path: str, response: Answer, truth: bytes, gone: set[str]) -> bool:
    """Whether a response is true, or says that it may not be; `gone` are tables that lost runs."""
    if path.endswith("thumbnail"):
        may_lack = response.incomplete or bool(gone & {"cutouts", "thumbnails"})
    else:
        may_lack = response.incomplete or ("detections" if path == CURVE else "cutouts") in gone
    if response.status == 200:
        if path == CURVE and may_lack:
            return points(response.body) <= points(truth)
        return response.body == truth
    return response.status in (502, 503) or (response.status == 404 and may_lack)


def contents(objects: Objects) -> dict[str, bytes]:
    """Every object of a site."""
    return {info.key: objects.get(info.key) for info in objects.list("")}


def ask(settings: Settings, paths: Sequence[str]) -> dict[str, Answer]:
    """What `read` answers, with the view of a new process."""
    found = {}
    for read in serving(make_app(settings)):
        for path in paths:
            response = read(path)
            found[path] = Answer(response.status, response.data, INCOMPLETE in response.headers)
    return found


def points(curve: bytes) -> set[str]:
    """The points of a light curve in JSON."""
    return {json.dumps(point) for point in json.loads(curve)["detections"]}


def _paths(key: str, data: bytes) -> list[str]:
    """The paths of `read` that are answered from an object."""
    if key.startswith("tables/detections/"):
        return [CURVE]
    if not key.startswith(("packs/", "thumbnails/", "tables/")):
        return []
    ids = sorted(set(pq.read_table(io.BytesIO(data))["alert_id"].to_pylist()))
    if key.startswith(("thumbnails/", "tables/thumbnails/")):
        return [f"/v1/alerts/{alert}/thumbnail" for alert in ids]
    return [f"/v1/alerts/{alert}/cutouts/{kind}" for alert in ids for kind in KINDS]
