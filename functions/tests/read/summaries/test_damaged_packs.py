"""Pages of nights and `/v1/alerts` show nothing wrong of a damaged pack, and say what they lack."""

import json
import random
import re
from collections.abc import Iterator

import pytest

from stampede.config.settings import Settings
from stampede.errors import NotFound, StoreDown
from stampede.lookup.packs.pack_alerts import PackedAlert
from stampede.read.app import make_app
from stampede.read.summaries import latest_alerts, night_counts, nights
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.parquet.checksums import metadata_of
from tests.support.alerts.fits_files import ztf_source
from tests.support.read.html_page import html
from tests.support.read.read_service import Reader, cutout, fill, serving
from tests.support.store.watched_objects import Failing

NIGHT, DAY = 59400, "/nights/2021-07-05"
PACKS = {"first": range(1, 9), "second": range(11, 16)}
ALL = sorted({*PACKS["first"], *PACKS["second"]})


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch) -> None:
    """What is read is not kept for seconds: each request shows what the store has."""
    for module in (latest_alerts, night_counts, nights):
        monkeypatch.setattr(module, "MAX_AGE", 0.0)


def night_of_packs() -> MemoryObjects:
    """Two packs of one night."""
    objects = MemoryObjects()
    for ids in PACKS.values():
        rows = [
            {**cutout(n, "ztf", "science", f"ZTF{n}", NIGHT + n / 100, image), "band": "gr"[n % 2]}
            for n, image in zip(ids, map(ztf_source, ids), strict=False)
        ]
        fill(objects, rows, [], Coverage.of({("ztf", 0): [*ids]}))
    return objects


@pytest.fixture
def objects() -> MemoryObjects:
    return night_of_packs()


@pytest.fixture
def read(objects) -> Iterator[Reader]:
    yield from serving(make_app(Settings(), objects))


def packs(objects) -> list[str]:
    """The keys of the packs, that of most alerts first."""
    keys = [info.key for info in objects.list("packs/")]
    return sorted(keys, key=lambda key: -len(objects.get(key)))


def latest(read) -> tuple[dict[int, str], bool]:
    """The bands of the alerts of `/v1/alerts`, and whether the response may lack some."""
    got = read("/v1/alerts?limit=100")
    assert got.status == 200
    response = json.loads(got.data)
    flagged = "Stampede-Incomplete" in got.headers
    assert flagged == bool(response.get("incomplete"))
    assert not flagged or got.headers["Cache-Control"] == "no-store"
    return {int(one["alert_id"]): one["band"] for one in response["alerts"]}, flagged


def shown(read, path: str = DAY) -> tuple[set[int], bool]:
    """The alerts of a page, and whether it says that it may lack some."""
    got = read(path)
    assert got.status == 200
    _, text = html(got)
    flagged = "Stampede-Incomplete" in got.headers
    assert flagged == ("This page may lack something" in text)
    assert "shown elsewhere" not in text or not flagged
    return {int(number) for number in re.findall(r'id="alert-(\d+)"', text)}, flagged


def counted(read) -> tuple[str, bool]:
    """What `/nights` says of the number of alerts, and whether it may lack some."""
    got = read("/nights")
    cell = re.search(r'wide">59400</td>(?:<td>(.*?)</td>)?<td class="wide">', html(got)[1])
    return cell[1] or "", "Stampede-Incomplete" in got.headers


def small_bytes(data: bytes) -> list[int]:
    """Where the columns lie that the pages read, and the footer."""
    size = int.from_bytes(data[-8:-4], "little")
    group = metadata_of(data[-8 - size : -8]).row_group(0)
    places = [*range(len(data) - 8 - size, len(data))]
    for number in range(group.num_columns):
        chunk = group.column(number)
        if chunk.path_in_schema in PackedAlert._fields:
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            places += range(start, start + chunk.total_compressed_size)
    return places


def test_sound_packs_are_shown_whole_and_without_a_flag(read):
    assert latest(read) == ({n: "gr"[n % 2] for n in ALL}, False)
    assert shown(read) == ({*ALL}, False)
    assert counted(read) == ("13", False)


def test_no_flipped_bit_shows_a_wrong_alert_or_hides_one_without_a_flag(objects, read):
    sound, _ = latest(read)
    key = packs(objects)[0]
    data = objects.get(key)
    chosen = random.Random(1)
    wrong, silent = [], []
    for place in chosen.sample(small_bytes(data), 60):
        damaged = bytearray(data)
        damaged[place] ^= 1 << chosen.randrange(8)
        objects.put(key, bytes(damaged))
        found, flagged = latest(read)
        on_page, page_flagged = shown(read)
        number, count_flagged = counted(read)
        if found.items() - sound.items() or on_page - sound.keys():
            wrong.append(place)
        if not (
            (found == sound or flagged)
            and (on_page == {*ALL} or page_flagged)
            and (number == "13" or count_flagged)
        ):
            silent.append(place)
    assert (len(wrong), len(silent)) == (0, 0)


DAMAGES = {
    "cut short": lambda objects, key, other: objects.put(key, objects.get(key)[:-50]),
    "empty": lambda objects, key, other: objects.put(key, b""),
    "the bytes of another pack": lambda objects, key, other: objects.put(key, objects.get(other)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_pack_is_told_and_forgotten_once_it_is_mended(objects, read, damage):
    key, other = packs(objects)
    sound, data = latest(read)[0], objects.get(key)
    DAMAGES[damage](objects, key, other)
    left = {n for n in sound if n not in PACKS["first"]}
    for _ in range(2):  # a second request is told as the first
        found, flagged = latest(read)
        assert (found.keys(), flagged) == (left, True)
        assert shown(read) == (left, True)
    number, flagged = counted(read)
    assert (number != "13", flagged) == (True, True)
    assert "1 pack of images cannot be read" in read("/").headers["Stampede-Incomplete"]
    objects.put(key, data)
    assert latest(read) == (sound, False)
    assert shown(read) == ({*ALL}, False)
    assert counted(read) == ("13", False)


def test_an_answer_that_lacks_a_pack_is_not_kept(objects, monkeypatch):
    for module in (latest_alerts, night_counts, nights):
        monkeypatch.setattr(module, "MAX_AGE", 60.0)
    key, _ = packs(objects)
    data = objects.get(key)
    objects.put(key, data[:-50])
    for read in serving(make_app(Settings(), objects)):
        assert latest(read)[1]
        assert shown(read)[1]
        assert counted(read)[1]
        objects.put(key, data)
        assert latest(read) == ({n: "gr"[n % 2] for n in ALL}, False)
        assert counted(read) == ("13", False)


@pytest.mark.parametrize("error", [StoreDown, NotFound])
def test_a_pack_that_the_store_does_not_give_costs_itself_alone(error):
    objects = night_of_packs()
    key, _ = packs(objects)
    failing = Failing(objects, error, lambda asked, start: asked == key)
    for read in serving(make_app(Settings(), failing)):
        left = {*PACKS["second"]}
        found, flagged = latest(read)
        assert (found.keys(), flagged) == (left, True)
        assert shown(read) == (left, True)
        assert counted(read)[1]


def test_a_pack_that_is_deleted_is_no_damage(objects, read):
    key, _ = packs(objects)
    latest(read)
    objects.delete(key)
    assert not latest(read)[1]
    assert shown(read) == ({*PACKS["second"]}, False)
    assert counted(read) == ("5", False)
