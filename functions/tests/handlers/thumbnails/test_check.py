"""Thumbnails that are not what their cutouts show are found, drawn again, and then served."""

import io
from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image

from stampede.alerts.columns import CUTOUT, KINDS
from stampede.config.settings import Settings
from stampede.handlers.compact import compact_tables
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.handlers.scrub.handler import scrub_sites
from stampede.handlers.thumbnails import check
from stampede.handlers.thumbnails.check import STALE
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.images.orientation import NO_TURN
from stampede.images.thumbnail import DRAWING, Thumbnail, thumbnail, thumbnails
from stampede.read.app import make_app
from stampede.store.integrity import scrub_state
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.pack import Pack, read_rows, write_pack
from stampede.store.runs.schema import CUTOUTS, THUMBNAIL_PACKS, THUMBNAILS
from stampede.store.tables.table import Table
from tests.support.alerts.fits_files import source, ztf
from tests.support.read.read_service import serving
from tests.support.store.rows import cutout
from tests.support.store.two_sites import TODAY

ALERTS = range(1, 7)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=f"file://{tmp_path}/first", grace_seconds=0, fanout=2)


def files_of(alert: int, damaged: bool = False) -> list[bytes]:
    """The cutouts of an alert; with `damaged` one pixel of one alert's is another."""
    images = [source(seed=10 * alert + number) for number in range(3)]
    if damaged and alert == 3:
        images[1] = images[1].copy()
        images[1][20, 20] += 300
    return [ztf(image) for image in images]


def pack_of(damaged: bool = False, alerts: range = ALERTS, salt: int = 0) -> Pack:
    rows = [
        cutout(alert, kind, file, TODAY + 0.5)
        for alert in alerts
        for kind, file in zip(KINDS, files_of(alert, damaged), strict=True)
    ]
    coverage = Coverage.of({("alerts", salt): alerts})
    return write_pack(pa.Table.from_pylist(rows, CUTOUT), coverage)


def stored(objects: Objects) -> Pack:
    pack = pack_of()
    objects.put(pack.key, pack.data)
    Table(objects, CUTOUTS).append(pack.locations, Coverage.of({("alerts", 0): ALERTS}))
    return pack


def draw_wrong(settings: Settings, salt: int = 0) -> None:
    """Thumbnails of this store's alerts, drawn from a pack in which an image differs."""
    scratch = settings.model_copy(update={"store": settings.store + f"-scratch{salt}"})
    bad = pack_of(damaged=True, salt=salt)
    other, objects = open_objects(scratch), open_objects(settings)
    other.put(bad.key, bad.data)
    Thumbnails(scratch).make(bad.key)
    for prefix in ("thumbnails/", "tables/thumbnails/"):
        for info in other.list(prefix):
            objects.put(info.key, other.get(info.key))


def served(settings: Settings) -> dict[int, bytes]:
    for read in serving(make_app(settings)):
        return {alert: read(f"/v1/alerts/{alert}/thumbnail").data for alert in ALERTS}
    raise AssertionError


GOOD = {alert: thumbnail(files_of(alert), "ztf").png for alert in ALERTS}


@pytest.mark.parametrize("salt", range(4))  # other names: the wrong pack sorts before or after
@pytest.mark.parametrize("right_too", [False, True])
def test_a_wrong_thumbnail_is_drawn_again(settings: Settings, salt: int, right_too: bool) -> None:
    pack = stored(open_objects(settings))
    draw_wrong(settings, salt)
    if right_too:  # the event was sent again after the pack was repaired
        Thumbnails(settings).make(pack.key)
    else:
        assert served(settings)[3] != GOOD[3]
    scrub_sites(settings)
    assert served(settings) == GOOD
    state = scrub_state.load(open_objects(settings), "store")
    assert state is not None
    assert state.left == ()
    assert deep_audit(settings, ["store"]).faults == []
    # Merging keeps it so, and so does the event that comes late.
    compact_tables(settings)
    Thumbnails(settings).make(pack.key)
    assert served(settings) == GOOD


def test_thumbnails_that_an_earlier_version_drew_are_turned_north_up(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = stored(open_objects(settings))
    with monkeypatch.context() as earlier:
        earlier.setattr("stampede.images.thumbnail.turn_of", lambda axes: NO_TURN)
        earlier.setattr("stampede.images.thumbnail.DRAWING", DRAWING - 1)
        Thumbnails(settings).make(pack.key)
    as_sent = {alert: thumbnail(files_of(alert)).png for alert in ALERTS}
    assert served(settings) == as_sent != GOOD
    scrub_sites(settings)
    assert served(settings) == GOOD


def draw_with_bad_memory(settings: Settings) -> None:
    """Store the thumbnails of a pack, one of another picture, with the right number."""
    objects = open_objects(settings)
    key = stored(objects).key
    Thumbnails(settings).make(key)
    right = {
        row["alert_id"]: row["drawn_from"]
        for row in Table(objects, THUMBNAILS).lookup(ALERTS).to_pylist()
    }
    for info in [*objects.list("thumbnails/"), *objects.list("tables/thumbnails/")]:
        objects.delete(info.key)
    rows, coverage = read_rows(pack_of(damaged=True).data)
    drawn = thumbnails(rows).rows
    numbers = pa.array([right[alert] for alert in drawn["alert_id"].to_pylist()], pa.uint32())
    at = drawn.schema.get_field_index("drawn_from")
    bad = write_pack(
        drawn.set_column(at, drawn.schema.field(at), numbers), coverage, THUMBNAIL_PACKS
    )
    objects.put(bad.key, bad.data)
    Table(objects, THUMBNAILS).append(bad.locations, coverage)


def test_what_bad_memory_drew_is_found_by_the_sample(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_with_bad_memory(settings)
    assert served(settings)[3] != GOOD[3]
    monkeypatch.setattr(check, "SAMPLE", 0.0)
    assert deep_audit(settings, ["store"]).faults == []
    monkeypatch.setattr(check, "SAMPLE", 0.3)  # of six alerts one has another picture
    rounds = 0
    while served(settings) != GOOD:
        assert deep_audit(settings, ["store"], repair=True).left == []
        rounds += 1
        assert rounds < 60  # 0.7^60: once in 2e9 runs


def drawn_again(settings: Settings, monkeypatch: pytest.MonkeyPatch, sample: float) -> int:
    """How many thumbnails an audit draws."""
    drawn = []

    def counted(files: list[bytes | None], survey: str) -> Thumbnail:
        drawn.append(files)
        return thumbnail(files, survey)

    with monkeypatch.context() as counting:
        counting.setattr(check, "SAMPLE", sample)
        counting.setattr(check, "thumbnail", counted)
        assert deep_audit(settings, ["store"]).faults == []
    return len(drawn)


def test_only_a_sample_is_drawn_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = stored(open_objects(settings))
    Thumbnails(settings).make(pack.key)
    assert drawn_again(settings, monkeypatch, 0.0) == 0
    assert drawn_again(settings, monkeypatch, 1.0) == len(ALERTS)
    compact_tables(settings)
    assert drawn_again(settings, monkeypatch, 0.0) == 0


def test_rows_that_do_not_say_what_they_were_drawn_from_are_drawn_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an earlier version, and those whose number is wrong: here of all but two alerts."""
    objects = open_objects(settings)
    pack = stored(objects)
    Thumbnails(settings).make(pack.key)
    places = Table(objects, THUMBNAILS).lookup(ALERTS)
    numbers = [*places["drawn_from"].to_pylist()[:2], None, None, 7, 8]
    at = places.schema.get_field_index("drawn_from")
    changed = places.set_column(at, places.schema.field(at), pa.array(numbers, pa.uint32()))
    for info in [*objects.list("tables/thumbnails/")]:
        objects.delete(info.key)
    Table(objects, THUMBNAILS).append(changed, Coverage.of({("alerts", 0): ALERTS}))
    assert drawn_again(settings, monkeypatch, 0.0) == len(ALERTS) - 2


@pytest.mark.parametrize("drawn", [True, False])
@pytest.mark.parametrize("column", ["crc32", "start", "length", "page_offset"])
def test_a_wrong_row_of_a_cutout_is_found(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, drawn: bool, column: str
) -> None:
    """Its run has the right digest: a machine with bad memory wrote it."""
    monkeypatch.setattr(check, "SAMPLE", 0.0)
    objects = open_objects(settings)
    pack = stored(objects)
    if drawn:
        Thumbnails(settings).make(pack.key)
    assert deep_audit(settings, ["store"]).faults == []
    for info in [*objects.list("tables/cutouts/")]:
        objects.delete(info.key)
    rows = pack.locations.to_pylist()
    rows[7][column] += 1
    wrong = pa.Table.from_pylist(rows, pack.locations.schema)
    Table(objects, CUTOUTS).append(wrong, Coverage.of({("alerts", 0): ALERTS}))
    [fault] = deep_audit(settings, ["store"]).faults
    assert fault == ("store", pack.key, f"{pack.key}: a row of cutouts points to other bytes")


def test_redrawn_thumbnails_that_were_wrong_too_lose_to_the_next(settings: Settings) -> None:
    objects = open_objects(settings)
    pack = stored(objects)
    draw_wrong(settings)
    places = Table(objects, THUMBNAILS).lookup(ALERTS)
    wrong = places.set_column(
        places.schema.get_field_index("redrawn"),
        places.schema.field("redrawn"),
        pa.array([5] * len(places), pa.int32()),
    )
    Table(objects, THUMBNAILS).append(wrong, Coverage())
    Thumbnails(settings).make(pack.key, again=True)
    assert served(settings) == GOOD
    assert set(Table(objects, THUMBNAILS).lookup(ALERTS)["redrawn"].to_pylist()) == {6}


def test_alerts_shown_from_another_pack_keep_their_thumbnails(settings: Settings) -> None:
    """Alert 3 is in two packs with other images; each has a wrong thumbnail of its own."""
    objects = open_objects(settings)
    stored(objects)
    other = pack_of(damaged=True, alerts=range(3, 9), salt=1)
    objects.put(other.key, other.data)
    Table(objects, CUTOUTS).append(other.locations, Coverage.of({("alerts", 1): range(3, 9)}))
    drawing = Thumbnails(settings)
    packs = [info.key for info in objects.list("packs/")]
    for key in packs:
        drawing.make(key)
        drawing.make(key, again=True)
    shown = set(Table(objects, CUTOUTS).lookup([3])["pack"].to_pylist())
    right = thumbnail(files_of(3, damaged=other.key in shown), "ztf").png
    assert served(settings)[3] == right
    for key in (*packs, *reversed(packs)):
        drawing.make(key, again=True)
        assert served(settings)[3] == right
    assert deep_audit(settings, ["store"]).faults == []


def test_deep_names_the_pack_and_mends_both_sites(settings: Settings, tmp_path: Path) -> None:
    both = settings.model_copy(update={"replica": f"file://{tmp_path}/second"})
    pack = stored(open_objects(both))
    draw_wrong(both, 2)
    Reconciler(both.model_copy(update={"reconcile": "replica"})).run()
    assert [tuple(fault) for fault in deep_audit(both, ["store"]).faults] == [
        ("store", pack.key, STALE)
    ]
    result = deep_audit(both, ["store", "replica"], repair=True)
    assert [fault.key for fault in result.faults] == [pack.key]
    assert result.left == []
    assert served(both) == served(both.model_copy(update={"store": both.replica})) == GOOD
    names = [
        [info.key for info in site.list("t")] for site in (open_objects(both), open_replica(both))
    ]
    assert names[0] == names[1]


def test_right_thumbnails_are_left_alone(settings: Settings) -> None:
    objects = open_objects(settings)
    pack = stored(objects)
    assert deep_audit(settings, ["store"]).faults == []  # none are drawn yet
    Thumbnails(settings).make(pack.key)
    before = [info.key for info in objects.list("")]
    assert deep_audit(settings, ["store"], repair=True).faults == []
    assert [info.key for info in objects.list("")] == before


def test_another_encoding_of_the_same_picture_is_right(settings: Settings) -> None:
    """Another version of a library compresses otherwise."""
    objects = open_objects(settings)
    stored(objects)
    rows = []
    for alert in ALERTS:
        out = io.BytesIO()
        Image.open(io.BytesIO(GOOD[alert])).save(out, "PNG", compress_level=1)
        assert out.getvalue() != GOOD[alert]
        head = cutout(alert, "science", None, TODAY + 0.5)
        rows.append({k: v for k, v in head.items() if k not in ("kind", "fits")})
        rows[-1]["png"] = out.getvalue()
    table = pa.Table.from_pylist(rows, THUMBNAIL_PACKS.rows.schema)
    coverage = Coverage.of({("alerts", 0): ALERTS})
    pack = write_pack(table, coverage, THUMBNAIL_PACKS)
    objects.put(pack.key, pack.data)
    Table(objects, THUMBNAILS).append(pack.locations, coverage)
    assert deep_audit(settings, ["store"]).faults == []


@pytest.mark.parametrize("how", ["flip", "delete"])
def test_thumbnails_that_are_lost_are_drawn_again_if_no_site_has_them(
    settings: Settings, how: str
) -> None:
    objects = open_objects(settings)
    pack = stored(objects)
    Thumbnails(settings).make(pack.key)
    [info] = objects.list("thumbnails/")
    data = objects.get(info.key)
    objects.delete(info.key)
    if how == "flip":
        objects.put(info.key, data[:60] + b"!!" + data[62:])
    found = {fault.key for fault in deep_audit(settings, ["store"]).faults}
    assert found == {pack.key, info.key}
    # The same picture has the same name, so the pack is whole again.
    assert deep_audit(settings, ["store"], repair=True).left == []
    assert served(settings) == GOOD
    assert objects.get(info.key) == data


def test_a_lost_pack_to_which_no_row_that_wins_points_is_not_missed(settings: Settings) -> None:
    """Its thumbnails were drawn again, differently, and its rows are not merged away yet."""
    objects = open_objects(settings)
    stored(objects)
    draw_wrong(settings)
    [wrong] = [info.key for info in objects.list("thumbnails/")]
    assert deep_audit(settings, ["store"], repair=True).left == []
    objects.delete(wrong)
    assert deep_audit(settings, ["store"]).faults == []
    assert served(settings) == GOOD
