import re
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

from stampede.alerts.columns import CUTOUT
from stampede.config.settings import Settings
from stampede.lookup.packs.pack_alerts import PackAlerts
from stampede.read.app import make_app
from stampede.read.pages import nights as night_page
from stampede.read.summaries import night_counts, nights
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.merged_images import Part, merge_cutouts
from stampede.store.packs.pack import read_content, write_pack
from stampede.store.packs.pack_name import Merged
from tests.support.alerts.fits_files import ztf_source
from tests.support.read.html_page import html
from tests.support.read.read_service import cutout, fill, serving
from tests.support.store.watched_objects import Watched

NIGHT, PACKS, EACH = 59400, 7, 4
AS_PAGE = {"Accept": "text/html"}


def store_of_night() -> MemoryObjects:
    """A night of packs, an alert of which was stored twice; and another night of one pack."""
    objects = MemoryObjects()
    image = ztf_source(1)
    for pack in range(PACKS):
        ids = [pack * EACH + number + 1 for number in range(EACH)] + [1] * (pack == PACKS - 1)
        rows = [cutout(n, "ztf", "science", f"ZTF{n}", NIGHT + n / 100, image) for n in ids]
        fill(objects, rows, [], Coverage.of({("ztf", 0): ids}))
    row = cutout(900, "lsst", "science", "9", NIGHT - 3.5, image)
    fill(objects, [row], [], Coverage.of({("lsst", 0): [1]}))
    return objects


def alerts_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="alert-(\d+)"', text)]


def walk(read, path: str, rel: str) -> tuple[list[list[int]], str]:
    """The alerts of each page from `path` on, and the path of the last page."""
    found = []
    while True:
        page, text = html(read(path))
        found.append(alerts_in(text))
        links = [a["href"] for a in page.all("a") if a.get("rel") == rel]
        if not links:
            return found, path
        path = links[0]


def test_pages_of_a_night_show_each_alert_once_in_both_directions(monkeypatch):
    monkeypatch.setattr(night_page, "MOST", 5)
    monkeypatch.setattr(night_page, "MOST_PACKS", 2)
    objects = Watched(store_of_night())
    for read in serving(make_app(Settings(), objects)):
        forward, last = walk(read, "/nights/2021-07-05", "next")
        backward, _ = walk(read, last, "prev")
        objects.calls.clear()
        read(last)
        packs = [key for operation, key in objects.calls if operation == "get" and "packs/" in key]
    assert sorted(chain(*forward)) == [*range(1, PACKS * EACH + 1)]
    assert sorted(chain(*backward)) == [*range(1, PACKS * EACH + 1)]
    assert max(map(len, forward)) == 5
    assert packs == []  # what was read is remembered


def test_nights_have_numbers_and_lead_to_their_alerts():
    for read in serving(make_app(Settings(), store_of_night())):
        text = html(read("/nights"))[1]
        rows = re.findall(
            r'/nights/([-0-9]+)".*?wide">(.*?)</td><td>(.*?)</td><td>(.*?)</td>', text
        )
        # Alert 1 lies in two packs.
        assert rows == [("2021-07-05", "59400", "0", "29"), ("2021-07-01", "59396", "1", "0")]
        assert all(f'href="/nights/{date}"' in html(read("/"))[1] for date, *_ in rows)
        assert "/nights/2021-07-01" in html(read("/nights?before=2021-07-05"))[1]
        assert "/nights/2021-07-05" not in html(read("/nights?before=59400"))[1]
        assert alerts_in(html(read("/nights/59396"))[1]) == [900]


def test_numbers_of_a_large_night_are_extrapolated(monkeypatch):
    monkeypatch.setattr(night_counts, "READ", 2)
    objects = Watched(store_of_night())
    counts = night_counts.NightCounts(objects, nights.NightPacks(objects), PackAlerts(objects))
    large, small = counts.of([NIGHT, NIGHT - 4])
    assert (small.alerts, small.exact) == ({"lsst": 1}, True)
    assert not large.exact
    assert 20 < large.alerts["ztf"] < 40
    assert objects.count("get") == 4  # two for each of two packs


def test_an_alert_counts_once_while_its_pack_and_the_merged_one_are_there():
    objects = MemoryObjects()
    packs = []
    for alert_id in (1, 2):
        row = cutout(alert_id, "ztf", "science", "Z", NIGHT + 0.5, b"x")
        rows = pa.Table.from_pylist([row], CUTOUT)
        packs.append(write_pack(rows, Coverage()))
    parts = [Part(read_content(pack.data, key=pack.key), np.ones(1, bool)) for pack in packs]
    keys = [pack.key for pack in packs]
    merged = merge_cutouts(parts, [], Merged(1, NIGHT, ""), keys)
    for pack in (*packs, merged):
        objects.put(pack.key, pack.data)
    listed = nights.NightPacks(objects)
    [count] = night_counts.NightCounts(objects, listed, PackAlerts(objects)).of([NIGHT])
    assert (count.alerts, count.exact) == ({"ztf": 2}, True)
    assert [info.key for info in listed.of(NIGHT, 10)] == [merged.key]
    assert len(listed.of(NIGHT, 2)) == 2
    part = nights.NightAlerts(listed, PackAlerts(objects)).part(NIGHT, 5, 5, None, None)
    assert sorted(alert.alert_id for _, alert in part.alerts) == [1, 2]


PROBLEMS = {
    "/nights/2021-07-06": 404,
    f"/nights/2021-07-05?from={'0' * 32}.0": 404,
    "/nights/yesterday": 400,
    "/nights/2021-07-05?from=2": 400,
    f"/nights/2021-07-05?from={'0' * 32}.0&until={'0' * 32}.0": 400,
    "/nights?before=x": 400,
}


def test_a_night_that_is_not_there_has_a_page_that_says_so():
    for read in serving(make_app(Settings(), store_of_night())):
        for path, status in PROBLEMS.items():
            got = read(path, headers=AS_PAGE)
            assert got.status == status, path
            page, text = html(got)
            if status == 404:
                last = [a["href"] for a in page.all("a")][-1]
                assert read(last).status == 200
                assert "night 2021-07-0" in text


@pytest.mark.parametrize(("night", "day"), [(59400, "2021-07-05"), (-900000, "-900000")])
def test_a_night_has_an_address(night, day):
    from stampede.read.plots.ticks import day_of, night_of_day

    assert (day_of(night), night_of_day(day)) == (day, night)
    assert nights.folder_of_night(night) == f"packs/{night}/"
