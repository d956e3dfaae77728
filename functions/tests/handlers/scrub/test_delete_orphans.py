"""Orphans: packs of batches that were delivered twice go, and every alert is served as before."""

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from stampede.cli.main import app
from stampede.config.settings import Settings
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves
from stampede.handlers.compact import compact_tables
from stampede.handlers.reconcile.findings import Findings
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.reconcile.repair import Repairer
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.handlers.scrub.handler import scrub_sites
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.read.app import make_app
from stampede.store.integrity import scrub_state
from stampede.store.integrity.references import check_packs
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.pack import read_rows
from stampede.store.runs.schema import PACK_SPECS
from stampede.telemetry import scrub_metrics
from stampede_bench.ingestion.decode import views_of_one_buffer
from tests.handlers.reconcile.test_reconciler import ping
from tests.support.alerts import made_alerts
from tests.support.alerts.fits_files import source, ztf
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import FIELDS, TOPIC, ztf_with_images
from tests.support.store.two_sites import all_same, environment, second_ceph, sites

__all__ = ["second_ceph", "sites"]  # fixtures

NIGHT = 61000  # fixed, so that which pack of a batch wins is the same every day
KINDS = ("packs", "thumbnails", "packets")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A store whose scrub reads everything in one pass, and begins a round with each."""
    return Settings(
        store=f"file://{tmp_path}/first",
        spool=tmp_path,
        grace_seconds=0,
        scrub_days=0,
        orphan_days=7,
        proof_days=None,  # its documents would count as copied
        histories_nights=0,  # what they know stays at its site
    )


@pytest.fixture
def both(settings: Settings, tmp_path: Path) -> Settings:
    return settings.model_copy(update={"replica": f"file://{tmp_path}/second"})


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch):
    """Call it to let the stores' clocks be ahead by so many days."""
    real, ahead = DirectoryObjects.now, [0.0]
    monkeypatch.setattr(DirectoryObjects, "now", lambda self: real(self) + timedelta(days=ahead[0]))

    def set_ahead(days: float) -> None:
        ahead[0] = days

    return set_ahead


def deliver(settings: Settings, *numbers: int, changed: bool = False) -> None:
    """Store a batch of these alerts, each at the offset of its number, and its thumbnails."""
    messages = [ztf_with_images(1000 + each, NIGHT + 0.5) for each in numbers]
    if changed:  # another file name in the alert, and another last byte of each image
        images = {name: {"fileName": "x", "stampData": ztf(source(seed=9))} for name in FIELDS}
        candidate = made_alerts.ztf_record(1000)["candidate"] | {"jd": 2400001.0 + NIGHT}
        messages[0] = made_alerts.ztf_alert(1000 + numbers[0], candidate=candidate, **images)
    views = views_of_one_buffer(messages)
    positions = [Position(TOPIC, 0, each) for each in numbers]
    objects = open_objects(settings)
    before = set(keys(objects, "packs"))
    for function in (cutouts, lightcurves):
        stored = function.make_batch_storer(settings)(Batch(views, positions))
        assert stored.outcomes == [None] * len(numbers)
    for key in set(keys(objects, "packs")) - before:
        Thumbnails(settings).make(key)


def deliver_until_later_packs_win(settings: Settings, changed: bool = False) -> set[str]:
    """Alerts 0 to 3 come again in batches with others, until their packs win; keys of the first."""
    deliver(settings, *range(4))
    objects = open_objects(settings)
    first = {kind: keys(objects, kind)[0] for kind in KINDS}
    for other in range(4, 400):
        deliver(settings, *range(4), other, changed=changed)
        if all(keys(objects, kind)[-1] > first[kind] for kind in KINDS):
            return set(first.values())
    raise AssertionError


@pytest.fixture(scope="session")
def deliver_twice(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., set[str]]:
    """`deliver_until_later_packs_win` into a directory: done once, since it takes half a second."""

    @cache
    def made(changed: bool) -> tuple[Path, set[str]]:
        folder = tmp_path_factory.mktemp("delivered-twice")
        settings = Settings(store=f"file://{folder}/store", spool=folder, grace_seconds=0)
        return folder / "store", deliver_until_later_packs_win(settings, changed)

    def copy(settings: Settings, changed: bool = False) -> set[str]:
        folder, orphans = made(changed)
        shutil.copytree(folder, settings.store.removeprefix("file://"))
        return orphans

    return copy


def keys(objects: Objects, kind: str = "") -> list[str]:
    found = [info.key for info in objects.list(f"{kind}/" if kind else "")]
    return [key for key in found if not key.startswith(("scrub/", "checkpoints/", "reconcile/"))]


def served(settings: Settings) -> dict[str, bytes]:
    """What readers get of every alert, at the first site."""
    objects, responses = open_objects(settings), {}
    packs = [read_rows(objects.get(key))[0]["alert_id"] for key in keys(objects, "packs")]
    for read in serving(make_app(settings)):
        for alert in sorted({alert for ids in packs for alert in ids.to_pylist()}):
            for path in ("packet", "thumbnail", "cutouts/science", "cutouts/difference"):
                got = read(f"/v1/alerts/{alert}/{path}")
                assert got.status == 200, (path, got.data)
                responses[f"{alert}/{path}"] = got.data
    return responses


def counted(metric, outcome: str) -> float:
    [family] = metric.collect()
    return sum(
        each.value
        for each in family.samples
        if each.labels == {"outcome": outcome, "site": "store"}
        and not each.name.endswith("_created")
    )


@pytest.mark.long
def test_a_redelivered_batch_is_deleted_after_the_grace(
    settings: Settings, later, deliver_twice
) -> None:
    orphans = deliver_twice(settings)
    objects = open_objects(settings)
    size = sum(objects.head(key).size for key in orphans)
    everything, responses = set(keys(objects)), served(settings)
    found = (
        counted(scrub_metrics.SCRUB_ORPHANS, "found"),
        counted(scrub_metrics.SCRUB_ORPHAN_BYTES, "found"),
    )
    for days in (0, 6.9):
        later(days)
        scrub_sites(settings)
        assert set(keys(objects)) == everything
    assert counted(scrub_metrics.SCRUB_ORPHANS, "found") - found[0] == 2 * 3
    assert counted(scrub_metrics.SCRUB_ORPHAN_BYTES, "found") - found[1] == 2 * size
    later(7.1)
    before = counted(scrub_metrics.SCRUB_ORPHAN_BYTES, "deleted")
    scrub_sites(settings)
    assert everything - set(keys(objects)) == orphans
    assert counted(scrub_metrics.SCRUB_ORPHAN_BYTES, "deleted") - before == size
    assert served(settings) == responses
    # Nothing takes them for lost, neither rows that lose nor offsets.
    assert deep_audit(settings, ["store"]).faults == []
    assert not any(check_packs(objects, spec).lost for spec in PACK_SPECS.values())
    assert Reconciler(settings).run(everything=True) == {}
    scrub_sites(settings)
    compact_tables(settings)
    assert served(settings) == responses
    assert everything - set(keys(objects, "packs") + keys(objects, "packets")) >= orphans


def test_never_if_so_set(settings: Settings, later, deliver_twice) -> None:
    deliver_twice(settings)
    objects = open_objects(settings)
    everything = keys(objects)
    later(4000)
    scrub_sites(settings.model_copy(update={"orphan_days": 0}))
    assert keys(objects) == everything


def test_another_version_of_an_alert_is_kept(settings: Settings, later, deliver_twice) -> None:
    """Two alerts of one id: the pack of the version that readers no longer get is the only one."""
    losing = deliver_twice(settings, changed=True)
    later(4000)
    scrub_sites(settings)
    assert losing <= set(keys(open_objects(settings)))


def test_two_packs_that_win_over_each_other(settings: Settings, later) -> None:
    """Each of them has an alert that no other pack holds."""
    for numbers in ((0, 1, 2), (2, 3, 4), (4, 5, 0)):
        deliver(settings, *numbers)
    objects = open_objects(settings)
    everything = keys(objects)
    later(8)
    scrub_sites(settings)
    assert keys(objects) == everything


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["flip", pytest.param("delete", marks=pytest.mark.long)])
def test_a_winner_that_is_damaged_or_lost(
    settings: Settings, later, kind: str, how: str, deliver_twice
) -> None:
    orphans = deliver_twice(settings)
    objects = open_objects(settings)
    winner = keys(objects, kind)[-1]
    good = objects.get(winner)
    if how == "flip":
        objects.put(winner, good[:60] + bytes([good[60] ^ 1]) + good[61:])
    else:
        objects.delete(winner)
    later(8)
    scrub_sites(settings)
    [kept] = [key for key in orphans if key.startswith(f"{kind}/")]
    if kind != "thumbnails":  # these are drawn again
        assert objects.head(kept)
    objects.put(winner, good)
    later(16)
    scrub_sites(settings)
    assert not orphans & set(keys(objects))


@pytest.mark.long
def test_two_sites_end_equal(both: Settings, later, deliver_twice) -> None:
    orphans = deliver_twice(both)
    Reconciler(both.model_copy(update={"reconcile": "replica"})).run()
    assert all_same(both)
    first, second = open_objects(both), open_replica(both)
    later(8)
    scrub_sites(both)
    assert not orphans & set(keys(first))
    assert orphans <= set(keys(second))
    assert deep_audit(both, ["store", "replica"]).faults == []
    assert Reconciler(both).run(repair=False) == {"orphaned": 3}
    assert orphans <= set(keys(second))
    assert Reconciler(both).run() == {"orphaned": 3}
    assert not orphans & set(keys(second))
    for _ in range(2):
        assert Reconciler(both).run(everything=True) == {}
        scrub_sites(both)
    assert keys(first) == keys(second)
    assert deep_audit(both, ["store", "replica"]).faults == []


@pytest.mark.long
def test_a_second_site_without_the_winner_keeps_the_pack(
    both: Settings, later, deliver_twice
) -> None:
    """It lacks the winner's bytes: the first site has the pack restored, until it has them."""
    orphans = deliver_twice(both)
    first, second = open_objects(both), open_replica(both)
    Reconciler(both.model_copy(update={"reconcile": "replica"})).run()
    winner = keys(first, "packs")[-1]
    second.delete(winner)
    later(8)
    scrub_sites(both.model_copy(update={"replica": ""}))
    Reconciler(both).run()
    [pack] = [key for key in orphans if key.startswith("packs/")]
    assert second.head(pack)
    assert second.head(winner)
    assert Reconciler(both).run() == {}
    later(16)
    scrub_sites(both)
    Reconciler(both).run()
    assert keys(first) == keys(second)
    assert not orphans & set(keys(first))


def test_what_the_first_site_lost_is_no_orphan(both: Settings, later, deliver_twice) -> None:
    orphans = deliver_twice(both)
    Reconciler(both.model_copy(update={"reconcile": "replica"})).run()
    first = open_objects(both)
    lost = [key for key in keys(first) if key.startswith(KINDS) and key not in orphans]
    for key in lost:
        first.delete(key)
    Reconciler(both).run()
    assert all(first.head(key) for key in lost)
    assert all_same(both)


def flip(objects: Objects, key: str, at: int = 60) -> None:
    data = objects.get(key)
    objects.put(key, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def left(settings: Settings, site: str = "store") -> set[str]:
    """What `scrub` reports of a site, after a round."""
    scrub_sites(settings)
    state = scrub_state.load(open_objects(settings), site)
    assert state
    return {key for key, _ in state.left}


@pytest.mark.long
def test_a_damaged_pack_that_goes_is_reported_until_a_round_has_missed_no_row(
    settings: Settings,
    deliver_twice,
) -> None:
    orphans = deliver_twice(settings)
    objects = open_objects(settings)
    needed = keys(objects, "packs")[-1]
    gone = [needed, *(key for key in orphans if not key.startswith("thumbnails/"))]
    for key in gone:
        flip(objects, key, -len(objects.get(key)) // 2)
    assert left(settings) >= set(gone)
    kept = objects.get(needed)
    for key in gone:
        objects.delete(key)
    # Rows of a run that cannot be read may point to any of them.
    run = keys(objects, "tables/cutouts")[-1]
    good = objects.get(run)
    flip(objects, run)
    for _ in range(3):
        assert left(settings) >= {run, *gone} - {needed}
    objects.put(run, good)
    left(settings)  # it was damaged before this round: this one tells
    for _ in range(3):
        assert left(settings) & {run, *gone} == {needed}
    objects.put(needed, kept)
    assert needed in left(settings)
    flip(objects, needed, -len(kept) // 2)
    assert not left(settings) & set(gone)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_copy_of_an_orphan_goes(both: Settings, later, kind: str, deliver_twice) -> None:
    """The first site has deleted it, so no site has a good copy."""
    orphans = deliver_twice(both)
    Reconciler(both.model_copy(update={"reconcile": "replica"})).run()
    first, second = open_objects(both), open_replica(both)
    [copy] = [key for key in orphans if key.startswith(f"{kind}/")]
    responses = served(both)
    later(8)
    scrub_sites(both.model_copy(update={"replica": ""}))
    flip(second, copy, at_image(second, copy))
    assert copy in left(both, "replica")
    assert Reconciler(both).run() == {"orphaned": 3}
    left(both, "replica")
    assert not left(both, "replica")
    assert keys(first) == keys(second)
    assert served(both) == responses


@pytest.mark.parametrize("kind", KINDS[::2])
@pytest.mark.parametrize("why", ["needed", "another version", "no offsets", "unreadable"])
def test_a_damaged_copy_that_may_be_needed_stays(
    both: Settings, later, kind: str, why: str, deliver_twice
) -> None:
    orphans = deliver_twice(both, changed=why == "another version")
    Reconciler(both.model_copy(update={"reconcile": "replica"})).run()
    first, second = open_objects(both), open_replica(both)
    [copy] = [key for key in orphans if key.startswith(f"{kind}/")]
    if why == "needed":  # the first site lost it, and the second
        copy = keys(second, kind)[-1]
    first.delete(copy)
    flip(second, copy, 4 if why == "unreadable" else at_image(second, copy))
    if why == "no offsets":
        for info in list(first.list(f"tables/{'cutouts' if kind == 'packs' else kind}/")):
            first.delete(info.key)
    later(8)
    chosen = both.model_copy(update={"reconcile": "restore,leftovers"})
    if why == "no offsets":
        repairer = Repairer(
            first, second, Findings(True, lambda _: None), True, lambda _: False, timedelta(days=7)
        )
        assert not repairer._delete_orphan(copy)
        repairer.close()
    else:
        assert Reconciler(chosen).run().get("orphaned", 0) == 0
    assert second.head(copy)


def at_image(objects: Objects, key: str) -> int:
    """A byte of the column with the images or packets of a pack."""
    file = pq.read_metadata(pa.BufferReader(objects.get(key)))
    column = file.row_group(0).column(file.schema.names.index(PACK_SPECS[key.split("/")[0]].image))
    return column.data_page_offset + column.total_compressed_size // 2


def test_audit_deep_counts_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, deliver_twice
) -> None:
    orphans = deliver_twice(settings)
    objects = open_objects(settings)
    size = sum(objects.head(key).size for key in orphans)
    monkeypatch.setenv("STAMPEDE_STORE", settings.store)
    monkeypatch.setenv("STAMPEDE_GRACE_SECONDS", "0")
    shown = CliRunner().invoke(app, ["audit", "--deep"])
    assert shown.exit_code == 0
    line = " ".join(shown.output.split())
    assert f"3 orphans, {size / 1e6:,.2f} MB, packs" in line
    assert "`scrub` deletes them after 7 days" in line
    shown = CliRunner().invoke(app, ["audit", "--deep", "--json"])
    read = json.loads(shown.stdout)["read"]["store"]
    assert (read["orphans"], read["orphan_bytes"]) == (3, size)


def test_the_function_deletes_them_on_ceph(serve, sites: Settings) -> None:
    """Two real S3 endpoints: their clocks, their times of objects, their listings."""
    orphans = deliver_until_later_packs_win(sites)
    at_once = sites.model_copy(update={"orphan_days": 1e-6, "grace_seconds": 0, "proof_days": None})
    assert set(Reconciler(at_once.model_copy(update={"reconcile": "replica"})).run()) == {
        "not-replicated"
    }
    served = serve("scrub", **environment(sites), GRACE_SECONDS=0, ORPHAN_DAYS=1e-6)
    assert ping(served) == 204
    first, second = open_objects(sites), open_replica(sites)
    assert not orphans & set(keys(first))
    assert Reconciler(at_once).run() == {"orphaned": 3}
    assert keys(first) == keys(second)
    text = served.http.request("GET", f"{served.url}/metrics").data.decode()
    assert 'stampede_scrub_orphan_packs_total{outcome="deleted",site="store"} 3.0' in text
