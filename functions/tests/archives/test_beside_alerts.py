"""What was imported lies beside alerts: the ledger and the audits know nothing of it."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.alerts.columns import DETECTION
from stampede.alerts.positions import positions_of
from stampede.archives.importer import Importer, Store
from stampede.archives.layouts import Asked
from stampede.config.settings import Settings
from stampede.handlers.hats.catalogue import publish
from stampede.handlers.histories.audit import HistoriesAudit
from stampede.handlers.purge import found_of_archive, purge_archive
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.lookup.errors import UnknownObject
from stampede.lookup.lookup import Lookup
from stampede.read.app import make_app
from stampede.store.compaction.compact import Policy, compact
from stampede.store.compaction.plan import MergePlan
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects, open_replica
from stampede.store.programmes.rights import Rights
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.table import Table
from tests.support.archives import ONE, OTHER, write_ztf, ztf_row
from tests.support.read.read_service import (
    ZTF_OBJECT,
    fill,
    point,
    sample_cutouts,
    sample_points,
    sample_store,
    serving,
)


def store_files(objects: Objects, *files: Path) -> pa.Table:
    """Import files; the points."""
    importer = Importer("ztfdr24", Asked.of(None, [], []), 61000.0)
    points = []
    for some in importer.runs(files):
        Store.of(objects).append(some)
        points.append(some)
    assert importer.tally.refused == 0
    return pa.concat_tables(points)


def curve(objects: Objects, object_id: object) -> list[dict]:
    lookup = Lookup(objects, Settings())
    try:
        return lookup.light_curves.of_object(str(object_id)).to_pylist()
    finally:
        lookup.close()


def test_ledger_and_proofs_stay_as_they_were(tmp_path: Path) -> None:
    def said(objects: MemoryObjects) -> list[object]:
        for read in serving(make_app(Settings(), objects)):
            return [read(path).json() for path in ("/v1/ledger", "/v1/proofs", "/v1/alerts")]
        raise AssertionError

    objects = sample_store()
    before = said(objects)
    kept = {info.key for info in objects.list("")}
    store_files(objects, write_ztf(tmp_path / "ztf.parquet"))
    assert said(objects) == before
    new = {info.key for info in objects.list("")} - kept
    assert {key.rpartition("/")[0] for key in new} == {"tables/detections", "tables/positions"}


def test_no_alert_is_missed_for_it(tmp_path: Path) -> None:
    """Nights of the archive's points that alerts have too: none of the points came as an alert."""
    objects = sample_store()
    store_files(objects, write_ztf(tmp_path / "a.parquet", [ztf_row(hmjd=[59400.0, 59400.1, 6e4])]))
    audit = HistoriesAudit(objects)
    found = {group.survey for group in audit.groups()}
    audit.close()
    assert "ztfdr24" not in found


def test_the_same_object_id_keeps_its_sources_apart(tmp_path: Path) -> None:
    """An archive may name its objects as a survey does."""
    objects = sample_store()
    (tmp_path / "a.jsonl").write_text(
        f'{{"object_id": "{ZTF_OBJECT}", "mjd": 58000.5, "band": "o", "ra": 10, "dec": -5, '
        '"flux": 100.0}\n'
    )
    store_files(objects, tmp_path / "a.jsonl")
    for read in serving(make_app(Settings(), objects)):
        url = f"/v1/objects/{ZTF_OBJECT}/lightcurve"
        both = read(url).json()
        assert both["survey"] is None
        assert {point["survey"] for point in both["detections"]} == {"ztf", "ztfdr24"}
        own = read(f"{url}?survey=ztf").json()
        assert (own["survey"], len(own["detections"])) == ("ztf", len(both["detections"]) - 1)
        [other] = read(f"{url}?survey=ztfdr24&band=o").json()["detections"]
        assert (other["total_flux"], other["flux"]) == (100.0, None)
        assert read(f"{url}?survey=ZTF").status == 400
        assert "ZTF and ZTFDR24" in read(f"/objects/{ZTF_OBJECT}").data.decode()


def test_runs_merge_with_those_of_alerts_and_old_ones_go(tmp_path: Path) -> None:
    objects = sample_store()
    for number in range(3):
        store_files(objects, write_ztf(tmp_path / f"{number}.parquet", [ztf_row(ONE + number)]))
    store_files(objects, write_ztf(tmp_path / "again.parquet", [ztf_row(ONE)]))
    names = (ONE, ONE + 2, ZTF_OBJECT)
    before = [repr(curve(objects, name)) for name in names]  # of NaN, which equals nothing
    assert len(curve(objects, ONE)) == 3
    for spec in (DETECTIONS, POSITIONS):
        for _ in range(2):
            table = Table(objects, spec, threads=1)
            compact(table, objects.now(), Policy(fanout=2, grace=timedelta(0), major=True))
        table.refresh()
        assert len(table.runs()) == len(table.listed()) == 1
    assert [repr(curve(objects, name)) for name in names] == before


@pytest.fixture
def sites(tmp_path: Path) -> Settings:
    settings = Settings(store=f"file://{tmp_path}/first", replica=f"file://{tmp_path}/second")
    objects = open_objects(settings)
    fill(objects, sample_cutouts(), sample_points(), Coverage.of({("ztf", 0): [1]}))
    store_files(objects, write_ztf(tmp_path / "ztf.parquet"))
    return settings


def test_an_archive_is_removed_at_both_sites_and_alerts_stay(
    sites: Settings, tmp_path: Path
) -> None:
    first, second = open_objects(sites), open_replica(sites)
    Reconciler(sites.model_copy(update={"reconcile": "replica"})).run(everything=True)
    compact(Table(first, DETECTIONS), first.now(), Policy(fanout=2, major=True))
    before = repr(curve(first, ZTF_OBJECT))
    coverage = coverage_of(first)
    assert coverage
    assert found_of_archive(sites, "ztfdr24") == {"tables/detections": 2, "tables/positions": 2}
    assert found_of_archive(sites, "ztfdr23") == {}
    purge_archive(sites, "ztfdr24")
    assert found_of_archive(sites, "ztfdr24") == {}
    for objects in (first, second):
        with pytest.raises(UnknownObject):
            curve(objects, ONE)
        assert repr(curve(objects, ZTF_OBJECT)) == before
        table = Table(objects, DETECTIONS)
        table.refresh()
        assert all("ztfdr24" not in rows for rows in surveys_in(table))
    assert coverage_of(first) == coverage
    store_files(first, tmp_path / "ztf.parquet")
    assert len(curve(first, ONE)) == 3


def test_a_merge_without_an_archive_has_a_name_of_its_own() -> None:
    """Or a compactor that writes the same merge with it would be taken for this one."""
    plans = [MergePlan(1, ("a",), ((None,),), Rights(None, without)) for without in
             (frozenset[str](), frozenset({"dr1"}), frozenset({"dr2"}))]  # fmt: skip
    assert len({plan.cuts for plan in plans}) == 3
    assert plans[0].cuts == MergePlan(1, ("a",), ((None,),)).cuts


def coverage_of(objects: Objects) -> Coverage:
    table = Table(objects, DETECTIONS)
    table.refresh()
    return table.coverage()


def surveys_in(table: Table) -> list[list[str]]:
    """The surveys of the rows of each part that is listed, live or not."""
    return [
        rows["survey"].to_pylist()
        for part in table.listed()
        for file in [table.reader.open(part)]
        for rows in file.read(list(file.numbers))
    ]


def test_the_second_site_has_them(sites: Settings) -> None:
    Reconciler(sites.model_copy(update={"reconcile": "replica"})).run(everything=True)
    first, second = open_objects(sites), open_replica(sites)
    for name in (ONE, OTHER):
        assert curve(second, name) == curve(first, name) != []
    found = deep_audit(sites, ["store", "replica"])
    assert found.totals["store"].objects == found.totals["replica"].objects > 4
    assert not [fault for fault in found.faults if fault.key.startswith("tables/")]


def test_a_catalogue_of_hats_gains_them_even_when_they_were_merged(tmp_path: Path) -> None:
    objects, files = MemoryObjects(), DirectoryObjects(tmp_path / "sky")
    points = pa.Table.from_pylist([point("a", "ztf", 1, 59000.0)], DETECTION)
    coverage = Coverage.of({("ztf", 0): [1]})
    Table(objects, POSITIONS).append(positions_of(points), coverage)
    Table(objects, DETECTIONS).append(points, coverage)
    publish(objects, files, "sky")
    epochs = {ONE: 3, OTHER: 2}  # at a place in a pixel that was written
    rows = [ztf_row(name, count, objra=10.0, objdec=-5.0) for name, count in epochs.items()]
    store_files(objects, write_ztf(tmp_path / "ztf.parquet", rows))
    for spec in (DETECTIONS, POSITIONS):
        compact(Table(objects, spec), objects.now(), Policy(fanout=2, major=True))
    publish(objects, files, "sky")
    rows = [
        row
        for path in (tmp_path / "sky").glob("objects/dataset/Norder=*/Dir=*/Npix=*.parquet")
        for row in pq.read_table(path, partitioning=None).to_pylist()
    ]
    curves = {row["object_id"]: row for row in rows}
    assert {name: row["points"] for name, row in curves.items()} == {
        "a": 1,
        str(ONE): 3,
        str(OTHER): 2,
    }
    one = curves[str(ONE)]
    assert one["survey"] == "ztfdr24"
    assert one["lightcurve"]["total_flux"][0] == pytest.approx(10 ** ((31.4 - 18.0) / 2.5))
