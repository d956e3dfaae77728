"""Rows of observing programmes that are not stored: nowhere, whatever the alert carries."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from stampede.config.settings import Settings
from stampede.errors import Damaged, SetupError, StoreDown
from stampede.handlers.hats.catalogue import publish
from stampede.handlers.purge import found, purge
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.replay.messages import Replayed
from stampede.handlers.replay.night import Night
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.read.app import make_app
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects, open_replica
from stampede.store.programmes.keys import programids_of
from stampede.store.programmes.rights import Rights
from stampede.store.runs.schema import ALL_TABLES, MOVING
from stampede.store.tables.table import Table
from stampede_client import store as client
from tests.support.alerts import made_alerts
from tests.support.alerts.avro_reading import records
from tests.support.alerts.mixed_programmes import NIGHT, mixed_alert, programmes_in
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store

OBJECT = "ZTF18aaaaaaa"
CANDID = 2430301980815015000
FORMATS = (
    "json",
    *(
        pytest.param(form, marks=pytest.mark.long)
        for form in ("csv", "parquet", "arrow", "votable")
    ),
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Two sites that are directories; the programmes that are stored are the default's."""
    return Settings(
        store=f"file://{tmp_path}/first",
        replica=f"file://{tmp_path}/second",
        spool=tmp_path,
        grace_seconds=0,
    )


def of(settings: Settings, programids: str) -> Settings:
    return settings.model_copy(update={"ztf_programids": programids})


def points_of(*programids: int) -> set[int]:
    """The ids of the points of these programmes in the histories of `mixed_alert`."""
    return {7700 + 10 * each + kind for each in programids for kind in (1, 2, 3)}


def get(settings: Settings, path: str) -> tuple[int, bytes]:
    for read in serving(make_app(settings)):
        got = read(path)
        return got.status, got.data
    raise AssertionError


def sources(settings: Settings, form: str = "json", object_id: str = OBJECT) -> set[int]:
    """The ids of the points of histories in a light curve."""
    status, data = get(settings, f"/v1/objects/{object_id}/lightcurve?format={form}")
    if status == 404:
        return set()
    assert status == 200
    found: Iterable
    if form == "json":
        found = [point["source_id"] for point in json.loads(data)["detections"]]
    elif form == "csv":
        found = [row["source_id"] for row in csv.DictReader(io.StringIO(data.decode()))]
    elif form == "parquet":
        found = pq.read_table(io.BytesIO(data))["source_id"].to_pylist()
    elif form == "arrow":
        found = pa.ipc.open_stream(data).read_all()["source_id"].to_pylist()
    else:
        found = re.findall(rb">(77\d\d)<", data)
    return {int(one) for one in found if len(str(int(one))) == 4}


def tables(objects: Objects, prefix: str) -> list[pa.Table]:
    return [
        pq.read_table(io.BytesIO(objects.get(info.key)), partitioning=None)
        for info in objects.list(prefix)
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_a_light_curve_has_only_the_points_of_programmes_that_are_stored(
    settings: Settings, form: str
) -> None:
    store(settings, [mixed_alert(CANDID)])
    assert sources(settings, form) == points_of(1)


@pytest.mark.parametrize(
    "codec", ["null", *(pytest.param(one, marks=pytest.mark.long) for one in ("deflate", "snappy"))]
)
def test_a_packet_lacks_the_rows_and_can_be_proven(settings: Settings, codec: str) -> None:
    message = mixed_alert(CANDID, codec=codec)
    store(settings, [message, mixed_alert(CANDID + 7, history=[1, 1], codec=codec)])
    for read in serving(make_app(settings)):
        got = read(f"/v1/alerts/{CANDID}/packet")
        assert programmes_in(got.data) == [1, 1, 1]
        assert got.headers["Stampede-Rows-Cut"] == "6"
        assert got.headers["Stampede-Message-SHA256"] == sha256(message).hexdigest()
        assert records(got.data) == records(mixed_alert(CANDID, history=[1]))
        assert codec != "null" or got.data == mixed_alert(CANDID, history=[1])
        whole = read(f"/v1/alerts/{CANDID + 7}/packet")
        assert whole.data == mixed_alert(CANDID + 7, history=[1, 1], codec=codec)
        assert "Stampede-Rows-Cut" not in whole.headers
        fields = json.loads(read(f"/v1/alerts/{CANDID}").data)["fields"]
        assert [row["programid"] for row in fields["fp_hists"]] == [1]
        page = read(f"/alerts/{CANDID}").data.decode()
        assert "of programme 2" not in page


def test_a_row_that_names_no_programme_is_of_its_alert(settings: Settings) -> None:
    store(settings, [mixed_alert(CANDID, history=[None, 2])])
    assert 7713 in sources(settings)
    assert programmes_in(get(settings, f"/v1/alerts/{CANDID}/packet")[1])[-1] is None


@pytest.mark.long
def test_a_history_of_other_programmes_alone_leaves_none(settings: Settings) -> None:
    store(settings, [mixed_alert(CANDID, history=[2, 3])])
    assert sources(settings) == set()
    assert programmes_in(get(settings, f"/v1/alerts/{CANDID}/packet")[1]) == []


def test_nothing_in_the_bucket_has_a_row_of_another_programme(settings: Settings) -> None:
    store(settings, [mixed_alert(CANDID)])
    Reconciler(settings.model_copy(update={"reconcile": "replica"})).run()
    for objects in (open_objects(settings), open_replica(settings)):
        for rows in tables(objects, "tables/detections/"):
            assert set(rows["source_id"].to_pylist()) == points_of(1) | {CANDID}
            assert set(rows["programid"].to_pylist()) == {1}
        for rows in tables(objects, "packets/"):
            for packet in rows["packet"].to_pylist():
                assert b"of programme 1" in packet
                assert b"of programme 2" not in packet
        for rows in tables(objects, "alerts/"):
            assert not {"prv_candidates", "fp_hists"} & {*rows.column_names}
    assert not deep_audit(settings, ["store", "replica"]).faults


def test_what_reads_the_store_in_other_ways_gives_no_such_row(
    settings: Settings, tmp_path: Path
) -> None:
    message = mixed_alert(CANDID)
    store(settings, [message])
    [sent] = Night(settings, NIGHT)
    assert isinstance(sent, Replayed)
    assert sent.message == mixed_alert(CANDID, history=[1])
    assert given_by_the_client(tmp_path / "first") == points_of(1)
    assert published(settings, tmp_path / "sky") == points_of(1)


def given_by_the_client(folder: Path) -> set[int]:
    found = client.detections(str(folder)).arrow()["source_id"].to_pylist()
    return {one for one in found if one < CANDID}


def published(settings: Settings, folder: Path) -> set[int]:
    publish(open_objects(settings), DirectoryObjects(folder), "sky", rights=Rights.of(settings))
    found: set[int] = set()
    for path in folder.glob("*/dataset/Norder=*/Dir=*/Npix=*.parquet"):
        for row in pq.read_table(path, partitioning=None).to_pylist():
            found |= set(row["lightcurve"]["source_id"])
    return {one for one in found if one < CANDID}


@pytest.mark.long
def test_a_message_that_is_cut_and_comes_again_keeps_its_proof(settings: Settings) -> None:
    message = mixed_alert(CANDID)
    store(settings, [message])
    [sent] = Night(settings, NIGHT)
    assert isinstance(sent, Replayed)
    for first in (1, 2):
        store(settings, [sent.message], first)
    for read in serving(make_app(settings)):
        got = read(f"/v1/alerts/{CANDID}/packet")
        assert got.data == sent.message
        assert got.headers["Stampede-Message-SHA256"] == sha256(message).hexdigest()
        assert read(f"/v1/alerts/{CANDID}/cutouts/science").status == 200


# -- another setting, on what is stored

OTHER, OTHERS_OBJECT = CANDID + 100, "ZTF18bbbbbbb"
SEEN = {"survey": "ztf", "mjd": 60000.0, "processed_mjd": 60000.0}
BODIES = {OBJECT: "45685", OTHERS_OBJECT: "2011 UW158"}


@pytest.fixture
def partners(settings: Settings) -> Settings:
    """A store of all programmes: an alert of programme 1, and one of 2, each with a mixed history.

    With thumbnails, and copied to the second site.
    """
    settings = of(settings, "1,2,3")
    store(
        settings,
        [mixed_alert(CANDID), mixed_alert(OTHER, 2, [2, 3], object_id=OTHERS_OBJECT)],
    )
    objects = open_objects(settings)
    seen = [
        {**SEEN, "alert_id": alert_id, "object_id": object_id, "programid": programid}
        for alert_id, object_id, programid in ((CANDID, OBJECT, 1), (OTHER, OTHERS_OBJECT, 2))
    ]
    for row in seen:
        body = {**row, "designation": BODIES[row["object_id"]]}
        Table(objects, MOVING).append(pa.Table.from_pylist([body], MOVING.schema), Coverage())
    for info in objects.list("packs/"):
        Thumbnails(settings).make(info.key)
    Reconciler(settings.model_copy(update={"reconcile": "replica"})).run()
    return settings


@pytest.mark.long
def test_all_programmes_are_given_while_all_are_stored(partners: Settings) -> None:
    assert sources(partners) == points_of(1, 2, 3)
    assert sources(partners, object_id=OTHERS_OBJECT) == points_of(2, 3)
    assert get(partners, f"/v1/alerts/{CANDID}/packet")[1] == mixed_alert(CANDID)
    for read in serving(make_app(partners)):
        for path in paths_of_the_other():
            assert read(path).status == 200, path
        for path in lists_of_all():
            got = read(path)
            assert OTHERS_OBJECT in got.data.decode() + got.headers.get("location", ""), path
    assert not deep_audit(partners, ["store", "replica"]).faults
    assert len(list(Night(partners, NIGHT))) == 2


def paths_of_the_other() -> list[str]:
    """Where the alert of programme 2 and its object are given."""
    alert, of_object = f"/v1/alerts/{OTHER}", f"/v1/objects/{OTHERS_OBJECT}"
    return [
        *(f"{alert}{end}" for end in ("", "/packet", "/cutouts/science", "/thumbnail")),
        *(f"/alerts/{OTHER}", f"/objects/{OTHERS_OBJECT}", f"{of_object}/lightcurve"),
        *("/v1/moving/2011UW158", "/moving/2011UW158"),
    ]


def lists_of_all() -> list[str]:
    """Where the alerts or objects of the store are listed."""
    return [
        "/v1/cone?ra=10&dec=-5&radius=60",
        "/v1/alerts",
        "/",
        f"/nights/{NIGHT}",
        "/find?id=ZTF18b",
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_another_setting_withholds_points_at_once(partners: Settings, form: str) -> None:
    assert sources(of(partners, "1"), form) == points_of(1)
    assert sources(of(partners, "1,3"), form) == points_of(1, 3)
    assert sources(of(partners, "3"), form) == points_of(3)


def test_another_setting_withholds_alerts_at_once(partners: Settings, tmp_path: Path) -> None:
    public = of(partners, "1")
    for read in serving(make_app(public)):
        for path in paths_of_the_other():
            assert read(path).status == 404, path
        assert read(f"/v1/alerts/{CANDID}/cutouts/science").status == 200
        assert read(f"/v1/alerts/{CANDID}/packet").status == 404  # not cut yet
        for path in lists_of_all():
            got = read(path)
            assert got.status == (404 if "ZTF18b" in path else 200), path
            for withheld in (str(OTHER), OTHERS_OBJECT):
                assert withheld not in got.data.decode(), path
    with pytest.raises(SetupError, match="no packets"):
        Night(public, NIGHT)
    assert published(public, tmp_path / "sky") == points_of(1)


def purged(settings: Settings) -> Settings:
    """The setting is 1 now, and what is of other programmes was removed."""
    public = of(settings, "1")
    assert purge(public)
    assert not found(public)
    return public


def test_a_purge_removes_all_that_is_of_other_programmes(partners: Settings) -> None:
    public = purged(partners)
    for objects in (open_objects(public), open_replica(public)):
        for info in objects.list(""):
            assert programids_of(info.key) <= {1}, info.key
        for rows in tables(objects, "tables/detections/"):
            assert set(rows["source_id"].to_pylist()) == points_of(1) | {CANDID}
        for table in ("cutouts", "packets", "thumbnails", "positions", "moving"):
            for rows in tables(objects, f"tables/{table}/"):
                assert set(rows["object_id"].to_pylist()) <= {OBJECT}, table
        for rows in tables(objects, "packets/"):
            for packet in rows["packet"].to_pylist():
                assert b"of programme 2" not in packet
    assert not deep_audit(public, ["store", "replica"]).faults
    assert not purge(public)


@pytest.mark.long
def test_after_a_purge_the_packet_is_cut_and_can_be_proven(partners: Settings) -> None:
    public = purged(partners)
    second = public.model_copy(update={"store": public.replica, "replica": ""})
    for site in (public, second):
        for read in serving(make_app(site)):
            got = read(f"/v1/alerts/{CANDID}/packet")
            assert got.data == mixed_alert(CANDID, history=[1])
            assert got.headers["Stampede-Rows-Cut"] == "6"
            proof = sha256(mixed_alert(CANDID)).hexdigest()
            assert got.headers["Stampede-Message-SHA256"] == proof
            for path in paths_of_the_other():
                assert read(path).status == 404, path
            assert read(f"/v1/alerts/{CANDID}/cutouts/science").status == 200
            assert read(f"/v1/alerts/{CANDID}/thumbnail").status == 200
    [sent] = Night(public, NIGHT)
    assert isinstance(sent, Replayed)
    assert sent.message == mixed_alert(CANDID, history=[1])


@pytest.mark.long
def test_a_packet_that_is_cut_twice_is_proven_by_what_was_sent(settings: Settings) -> None:
    message = mixed_alert(CANDID)
    store(of(settings, "1,3"), [message])
    purge(of(settings, "1"))
    for read in serving(make_app(settings)):
        got = read(f"/v1/alerts/{CANDID}/packet")
        assert got.data == mixed_alert(CANDID, history=[1])
        assert got.headers["Stampede-Rows-Cut"] == "6"
        assert got.headers["Stampede-Message-SHA256"] == sha256(message).hexdigest()


@pytest.mark.long
def test_other_readers_give_nothing_of_other_programmes_after_a_purge(
    partners: Settings, tmp_path: Path
) -> None:
    published(partners, tmp_path / "sky")
    public = purged(partners)
    assert published(public, tmp_path / "sky") == points_of(1)
    for site in ("first", "second"):
        assert given_by_the_client(tmp_path / site) == points_of(1)


@pytest.mark.long
def test_a_programme_that_is_stored_again_comes_with_its_alerts(partners: Settings) -> None:
    purged(partners)
    assert sources(partners) == points_of(1)
    store(partners, [mixed_alert(CANDID)], 10)
    assert sources(partners) == points_of(1, 2, 3)
    assert get(partners, f"/v1/alerts/{CANDID}/packet")[1] == mixed_alert(CANDID)


@pytest.mark.long
def test_a_purge_that_is_stopped_goes_on(partners: Settings) -> None:
    """Whatever write or deletion fails, nothing of programme 1 is lost."""
    public = of(partners, "1")
    for stop in range(1, 200):
        with pytest.MonkeyPatch.context() as patch:
            left = [stop]
            for name in ("put", "delete"):
                patch.setattr(DirectoryObjects, name, failing(name, left))
            try:
                purge(public)
            except StoreDown:
                assert sources(public) == points_of(1)
            else:
                break
    assert stop > 3
    assert not found(public)
    assert get(public, f"/v1/alerts/{CANDID}/packet")[1] == mixed_alert(CANDID, history=[1])
    assert not deep_audit(public, ["store", "replica"]).faults


def failing(name: str, left: list[int]) -> Callable:
    method = getattr(DirectoryObjects, name)

    def call(self: DirectoryObjects, *arguments, **options):
        left[0] -= 1
        if not left[0]:
            raise StoreDown("no")
        return method(self, *arguments, **options)

    return call


@pytest.mark.long
def test_a_compaction_before_the_purge_changes_nothing(partners: Settings) -> None:
    store(partners, [mixed_alert(CANDID + 7)], 10)
    for spec in ALL_TABLES.values():
        table = Table(open_objects(partners), spec)
        compact(table, datetime.now(UTC) + timedelta(days=1), Policy(major=True))
        table.close()
    public = purged(partners)
    assert sources(public) == points_of(1)
    assert not deep_audit(public, ["store", "replica"]).faults


@pytest.mark.long
def test_the_ledger_counts_the_alerts_that_were_removed(partners: Settings) -> None:
    """They were received and stored: it is no loss that their rows are not there."""
    before = [Table(open_objects(partners), spec).coverage() for spec in ALL_TABLES.values()]
    public = purged(partners)
    for site in (open_objects, open_replica):
        objects = site(public)
        assert [Table(objects, spec).coverage() for spec in ALL_TABLES.values()] == before


@pytest.mark.long
def test_the_second_site_forgets_rows_that_two_merges_took(partners: Settings) -> None:
    """A run that was purged, and then merged, before the second site saw it."""
    alone = partners.model_copy(update={"replica": "", "ztf_programids": "1"})
    purge(alone)
    store(alone, [mixed_alert(CANDID + 7, history=[1])], 10)
    merged_twice(alone)
    public = of(partners, "1")
    steps = "restore,packs,replica,leftovers"
    for _ in range(3):
        Reconciler(public.model_copy(update={"reconcile": steps})).run(everything=True)
    for site in (open_objects, open_replica):
        for rows in tables(site(public), "tables/detections/"):
            assert set(rows["source_id"].to_pylist()) == points_of(1) | {CANDID, CANDID + 7}


def merged_twice(settings: Settings) -> None:
    """Merge all runs, and delete what was merged."""
    for spec in ALL_TABLES.values():
        table = Table(open_objects(settings), spec)
        for days in (1, 2):
            later = datetime.now(UTC) + timedelta(days=days)
            compact(table, later, Policy(grace=timedelta(), major=True))
        table.close()


@pytest.mark.parametrize("incomplete", [False, True])
def test_a_purge_keeps_a_packet_that_lacks_an_image(partners: Settings, incomplete: bool) -> None:
    """`cutouts` may store the image later, or the second site may have it."""
    first, public = open_objects(partners), of(partners, "1")
    lost = {
        info.key: first.get(info.key)
        for info in first.list("packs/")
        if programids_of(info.key) == {1}
    }
    for key in lost:
        first.delete(key)
        open_replica(partners).delete(key)
    with pytest.raises(Damaged, match="images of 1 alerts"):
        purge(public)
    if incomplete:
        purge(public, incomplete=True)
        assert not found(public)
        return
    for key, data in lost.items():
        first.put(key, data)
    assert found(public)
    purge(public)
    assert not found(public)
    assert get(public, f"/v1/alerts/{CANDID}/packet")[1] == mixed_alert(CANDID, history=[1])


@pytest.mark.long
def test_the_second_site_forgets_an_alert_that_lacks_an_image(settings: Settings) -> None:
    """A row of an image that was not sent names no pack: the other rows of its alert tell."""
    every = of(settings, "1,2")
    [record] = records(mixed_alert(CANDID + 1, 2, [2], object_id=OTHERS_OBJECT))
    unsent = made_alerts.contained([record | {"cutoutScience": None}], made_alerts.ztf_schema())
    others = [mixed_alert(CANDID + number, history=[1]) for number in (0, 2, 3, 4, 5)]
    store(every, [*others, unsent])
    Reconciler(every.model_copy(update={"reconcile": "replica"})).run()
    alone = settings.model_copy(update={"replica": ""})
    purge(alone)
    store(alone, [mixed_alert(CANDID + 7, history=[1])], 10)
    merged_twice(alone)
    public = of(settings, "1")
    purge(public)
    for site in (open_objects, open_replica):
        for rows in tables(site(public), "tables/cutouts/"):
            assert OTHERS_OBJECT not in rows["object_id"].to_pylist(), site
