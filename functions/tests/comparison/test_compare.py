"""Nights of one store beside those of other archives: what differs is named, and nothing else."""

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.comparison import stampede_site
from stampede.comparison.alert_files import AlertFiles
from stampede.comparison.archive_files import LocalFolder
from stampede.comparison.compare import Archive, differences
from stampede.comparison.id_tables import IdTables, tables_of
from stampede.comparison.night_counts import NightCounts
from stampede.comparison.stampede_site import StampedeSite
from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.proofs.leaves import WIDTH, root_of_entries, united
from stampede.proofs.night_proof import keys_of, latest_of, nights_of
from stampede.proofs.ranges import begins_of, digests_of, parse, slices_of, text_of
from stampede.read.app import make_app
from stampede.store.open import open_objects
from stampede_simulator.alert_bytes import SimulatedAlert
from tests.support.alerts import made_alerts
from tests.support.proofs import alerts, bodies, prove, settings_in
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store

COUNT = 60


@pytest.fixture(scope="module")
def sent() -> list[SimulatedAlert]:
    return alerts(COUNT)


def filled(directory: Path, messages: list[bytes]) -> Settings:
    """A store of these messages, proven."""
    settings = settings_in(directory)
    store(settings, messages)
    prove(open_objects(settings))
    return settings


@pytest.fixture
def settings(tmp_path: Path, sent) -> Settings:
    return filled(tmp_path / "ours", bodies(sent))


def found(settings: Settings, other: Archive) -> dict[str, set[int]]:
    """Ids by what differs, of all nights."""
    kinds: dict[str, set[int]] = {}
    for each in differences(other, open_objects(settings), None, 0, 10**6):
        for kind, ids in each.kinds.items():
            kinds.setdefault(kind, set()).update(ids.tolist())
    return kinds


def files_of(path: Path, settings: Settings) -> AlertFiles:
    """An archive of alerts in files."""
    return AlertFiles(LocalFolder(path).alerts(), settings, lambda text: None)


def ids_of(path: Path) -> IdTables:
    """An archive of ids in files."""
    return IdTables(tables_of(LocalFolder(path).tables()))


def changed(alert: SimulatedAlert) -> bytes:
    """The same alert in other bytes: one of its images has another last byte."""
    image = alert.fits["science"]
    assert image
    at = alert.body.rindex(image) + len(image) - 1
    return alert.body[:at] + bytes([alert.body[at] ^ 1]) + alert.body[at + 1 :]


def planted(sent: list[SimulatedAlert]) -> tuple[list[bytes], dict[str, set[int]]]:
    """Messages of another archive, and how they differ: one lost, one more, one changed."""
    lost, other = sent[3], next(a for a in sent[10:] if a.fits["science"] and a.survey == "lsst")
    more = alerts(2 * COUNT)[COUNT]
    messages = [changed(each) if each is other else each.body for each in sent if each is not lost]
    expected = {
        "only here": {lost.alert_id},
        "only there": {more.alert_id},
        "other bytes": {other.alert_id},
    }
    return [*messages, more.body], expected


@pytest.fixture
def site(tmp_path: Path, sent) -> Iterator[tuple[StampedeSite, dict[str, set[int]]]]:
    messages, expected = planted(sent)
    for reader in serving(make_app(filled(tmp_path / "theirs", messages))):
        yield StampedeSite(reader.url), expected


def test_another_stampede_is_asked_for_what_differs_alone(settings: Settings, site) -> None:
    other, expected = site
    assert found(settings, other) == expected


def test_an_equal_stampede_has_no_differences(settings: Settings) -> None:
    for reader in serving(make_app(settings)):
        assert found(settings, StampedeSite(reader.url)) == {}


def test_nights_come_in_several_answers(settings: Settings, monkeypatch) -> None:
    monkeypatch.setattr(stampede_site, "NIGHTS", 1)
    for reader in serving(make_app(settings)):
        nights = StampedeSite(reader.url).nights()
    assert nights == sorted(nights_of(open_objects(settings)))
    assert len({night for _, night in nights}) > 1


def test_a_night_whose_proof_is_damaged_there_is_not_compared(
    tmp_path: Path, settings: Settings, sent
) -> None:
    """Nothing is said to be only here; the other nights are compared."""
    theirs = filled(tmp_path / "theirs", [each.body for each in sent])
    objects = open_objects(theirs)
    nights = sorted(nights_of(objects))
    (key,) = keys_of(objects, *nights[0])
    objects.put(key, objects.get(key)[:-1])
    for reader in serving(make_app(theirs)):
        other = StampedeSite(reader.url)
        compared = [*differences(other, open_objects(settings), None, 0, 10**6)]
    assert [(each.survey, each.night) for each in compared] == nights[1:]
    assert all(each.is_equal for each in compared)
    (fault,) = other.faults
    assert fault.startswith(f"{nights[0][0]} {nights[0][1]}: the proof at {reader.url} is damaged")
    assert key in fault


def test_what_is_not_there_is_said(settings: Settings) -> None:
    for reader in serving(make_app(settings)):
        with pytest.raises(SetupError, match="answers 404"):
            found(settings, StampedeSite(f"{reader.url}/nothing"))


def write_alerts(folder: Path, messages: list[bytes]) -> Path:
    folder.mkdir()
    for number, message in enumerate(messages):
        (folder / f"{number:03}.avro").write_bytes(message)
    return folder


def test_a_folder_of_alerts(tmp_path: Path, settings: Settings, sent) -> None:
    messages, expected = planted(sent)
    folder = write_alerts(tmp_path / "folder", [*messages, messages[0], b"junk" * 40])
    other = files_of(folder, settings)
    first = next(each.alert_id for each in sent if each.body == messages[0])
    assert found(settings, other) == expected | {"twice there": {first}}
    (fault,) = other.faults
    assert "061.avro" in fault


@pytest.mark.real
@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="no real alerts here")
def test_real_alerts(tmp_path: Path) -> None:
    messages = made_alerts.real_alerts()
    ours = filled(tmp_path / "ours", messages)
    other = files_of(write_alerts(tmp_path / "all", messages), ours)
    assert other.faults == []
    assert "only here" not in found(ours, other)
    assert "other bytes" not in found(ours, other)
    fewer = files_of(write_alerts(tmp_path / "fewer", messages[1:]), ours)
    assert len(found(ours, fewer)["only here"]) == 1


@pytest.mark.parametrize("column", ["alert_id", "candid", "diaSourceId"])
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_list_of_ids(tmp_path: Path, settings: Settings, sent, form: str, column: str) -> None:
    ids = [each.alert_id for each in sent]
    table = pa.table({"night": [1] * COUNT, column: [*ids[1:], 12345]})
    table = pa.concat_tables([table, table.slice(4, 1)])
    file = tmp_path / f"ids.{form}"
    pq.write_table(table, file) if form == "parquet" else pyarrow.csv.write_csv(table, file)
    assert found(settings, ids_of(file)) == {
        "only here": {ids[0]},
        "only there": {12345},
        "twice there": {ids[5]},
    }


def write_catalogue(folder: Path, kind: str, table: pa.Table) -> None:
    """A HATS catalogue of one pixel."""
    pixels = folder / "dataset" / "Norder=0" / "Dir=0"
    pixels.mkdir(parents=True)
    pq.write_table(table, pixels / "Npix=4.parquet")
    pq.write_table(table.slice(0, 1), folder / "dataset" / "data_thumbnail.parquet")
    (folder / "partition_info.csv").write_text("Norder,Npix\n0,4\n")
    (folder / "hats.properties").write_text(f"#HATS\nobs_collection=x\ndataproduct_type={kind}\n")


NESTINGS = {
    "flat": lambda ids: pa.table({"diaSourceId": ids}),
    "lists": lambda ids: pa.table(
        {"diaObjectId": [1, 2], "lc": [{"diaSourceId": ids[:3]}, {"diaSourceId": ids[3:]}]}
    ),
    "structs": lambda ids: pa.table(
        {"diaObjectId": [1, 2], "lc": [[{"diaSourceId": each} for each in ids], None]}
    ),
}


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_hats_collection(tmp_path: Path, settings: Settings, sent, nesting: str) -> None:
    """Its margin repeats rows; its other files have none."""
    ids = [each.alert_id for each in sent]
    place = tmp_path / "collection"
    write_catalogue(place / "objects", "object", NESTINGS[nesting]([*ids[1:], 12345]))
    write_catalogue(place / "margin", "margin", NESTINGS["flat"](ids[:9]))
    (place / "collection.properties").write_text("hats_primary_table_url=objects\n")
    assert found(settings, ids_of(place)) == {"only here": {ids[0]}, "only there": {12345}}


def counts_of(settings: Settings) -> dict[tuple[str, int], int]:
    """How many alerts each night of a store has."""
    objects = open_objects(settings)
    return {
        place: latest_of(objects, *place)[0].statement["alerts"] for place in nights_of(objects)
    }


FORMS = {
    "fink.json": lambda survey, night, count: {
        "key:key": f"{survey}_{date.fromordinal(night + 678576):%Y%m%d}",
        "basic:raw": count,
        "basic:sci": 0,
    },
    "mjd.csv": lambda survey, night, count: {"survey": survey, "night": night, "alerts": count},
    "iso.csv": lambda survey, night, count: {
        "survey": survey,
        "night": date.fromordinal(night + 678576).isoformat(),
        "count": count,
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_counts_by_night(tmp_path: Path, settings: Settings, form: str) -> None:
    counts = counts_of(settings)
    rows = [FORMS[form](*place, count) for place, count in sorted(counts.items())]
    file = tmp_path / form
    write_rows(file, rows)
    equal = NightCounts.of(LocalFolder(file).tables(), None)
    assert equal
    assert equal.counts == counts
    assert all(each.is_equal for each in equal.differences(open_objects(settings), None, 0, 10**6))

    place = min(counts)
    rows[0] = FORMS[form](*place, counts[place] + 2)
    write_rows(file, [*rows[:-1], FORMS[form](*max(counts), None)])
    other = NightCounts.of(LocalFolder(file).tables(), None)
    assert other
    unequal = [
        (each.survey, each.night, each.counts)
        for each in other.differences(open_objects(settings), None, 0, 10**6)
        if not each.is_equal
    ]
    assert unequal == [
        (*place, (counts[place], counts[place] + 2)),
        (*max(counts), (counts[max(counts)], 0)),
    ]
    (fault,) = other.faults
    assert "has no number of alerts" in fault


def write_rows(file: Path, rows: list[dict]) -> None:
    if file.suffix == ".json":
        file.write_text(json.dumps(rows))
    else:
        pyarrow.csv.write_csv(pa.Table.from_pylist(rows), file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("night,count\n61000,2\n", "give --survey"),
        ("night,count,survey\ntoday,2,ztf\n", "neither an MJD nor a date: 'today'"),
        ("night,count,survey\n20211332,2,ztf\n", "month must be in"),
    ],
)
def test_counts_that_name_no_night_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(SetupError, match=message):
        NightCounts.of(LocalFolder(tmp_path).tables(), None)


@pytest.mark.parametrize("name", ["a.parquet", "a.json", "a.csv"])
def test_what_is_no_table_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(SetupError, match=f"{name} cannot be read"):
        ids_of(tmp_path)


def test_a_list_without_ids_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("night,size\n1,2\n")
    with pytest.raises(SetupError, match="no column of ids"):
        ids_of(tmp_path / "a.csv")


def test_a_store_without_proofs_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("candid\n1\n")
    with pytest.raises(SetupError, match="stampede proofs make"):
        found(settings_in(tmp_path), ids_of(tmp_path / "a.csv"))


def test_three_of_very_many_cost_little(tmp_path: Path) -> None:
    """The digests of ranges, and the entries of those that differ: not the whole night."""
    chance = np.random.default_rng(2)
    entries = chance.integers(0, 256, (200_000, WIDTH), np.uint8)
    entries[:, 0] &= 0x7F
    ours = united(entries)
    theirs = united(np.delete(ours, [5, 100_000, 150_000], axis=0))
    begins = begins_of(np.ascontiguousarray(ours[:, :8]).view(">i8").ravel().astype(np.int64), 4096)
    one, other = digests_of([ours], begins), digests_of([theirs], begins)
    unequal = [
        number for number, pair in enumerate(zip(one, other, strict=True)) if len({*pair}) > 1
    ]
    assert len(unequal) == 3
    there = slices_of(theirs, begins)
    size = 32 * len(one) + sum(WIDTH * (there[n].stop - there[n].start) for n in unequal)
    assert size < 500_000


@given(st.lists(st.integers(1, 50), max_size=40), st.lists(st.integers(1, 60), max_size=10))
def test_ranges_divide_all_entries(ids: list[int], begins: list[int]) -> None:
    entries = np.zeros((len(ids), WIDTH), np.uint8)
    entries[:, 7] = sorted(ids)
    wanted = sorted({*begins})
    parts = [entries[each] for each in slices_of(entries, wanted)]
    assert np.array_equal(np.concatenate(parts), entries)
    for part, low, high in zip(parts, [0, *wanted], [*wanted, 99], strict=True):
        assert all(low <= number < high for number in part[:, 7].tolist())
    assert parse(text_of(wanted)) == wanted
    digests = [root_of_entries(part) for part in parts]
    for size in (1, 7, 100):
        pieces = [entries[at : at + size] for at in range(0, len(entries), size)]
        assert digests_of(pieces, wanted) == digests


@pytest.mark.parametrize("body", [b"one", b"2 1", b"1 1", b"-1", b"9" * 30, b"\xff"])
def test_a_body_that_has_no_ascending_ids_is_refused(settings: Settings, body: bytes) -> None:
    for reader in serving(make_app(settings)):
        place = reader("/v1/proofs").json()["proofs"][0]["href"]
        got = reader(f"{place}/ranges", "POST", body)
        assert got.status == 400
        assert json.loads(got.data)["parameter"] == "body"
