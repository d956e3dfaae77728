"""Nights of one store beside those of other archives: what differs is named, and nothing else."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.comparison.alert_files import AlertFiles
from stampede.comparison.compare import Archive, differences
from stampede.comparison.id_tables import IdTables
from stampede.comparison.stampede_site import StampedeSite
from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.proofs.leaves import WIDTH, root_of_entries, united
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
    for each in differences(open_objects(settings), other, None, 0, 10**6):
        for kind, ids in each.kinds.items():
            kinds.setdefault(kind, set()).update(ids.tolist())
    return kinds


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
    other = AlertFiles([folder], settings, lambda text: None)
    first = next(each.alert_id for each in sent if each.body == messages[0])
    assert found(settings, other) == expected | {"twice there": {first}}
    (fault,) = other.faults
    assert "061.avro" in fault


@pytest.mark.real
@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="no real alerts here")
def test_real_alerts(tmp_path: Path) -> None:
    messages = made_alerts.real_alerts()
    ours = filled(tmp_path / "ours", messages)
    other = AlertFiles([write_alerts(tmp_path / "all", messages)], ours, lambda text: None)
    assert other.faults == []
    assert "only here" not in found(ours, other)
    assert "other bytes" not in found(ours, other)
    fewer = AlertFiles([write_alerts(tmp_path / "fewer", messages[1:])], ours, lambda text: None)
    assert len(found(ours, fewer)["only here"]) == 1


@pytest.mark.parametrize("column", ["alert_id", "candid", "diaSourceId"])
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_list_of_ids(tmp_path: Path, settings: Settings, sent, form: str, column: str) -> None:
    ids = [each.alert_id for each in sent]
    table = pa.table({"night": [1] * COUNT, column: [*ids[1:], 12345]})
    table = pa.concat_tables([table, table.slice(4, 1)])
    file = tmp_path / f"ids.{form}"
    pq.write_table(table, file) if form == "parquet" else pyarrow.csv.write_csv(table, file)
    assert found(settings, IdTables([file])) == {
        "only here": {ids[0]},
        "only there": {12345},
        "twice there": {ids[5]},
    }


def test_a_list_without_ids_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("night,count\n1,2\n")
    with pytest.raises(SetupError, match="no column of ids"):
        IdTables([tmp_path / "a.csv"])


def test_a_store_without_proofs_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("candid\n1\n")
    with pytest.raises(SetupError, match="stampede proofs make"):
        found(settings_in(tmp_path), IdTables([tmp_path / "a.csv"]))


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
