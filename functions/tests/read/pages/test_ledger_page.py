"""The page of the ledger, and the sentence on the front page."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.handlers.reconcile.histories import compare_histories
from stampede.lookup import histories_summary, ledger_cache
from stampede.lookup.histories_summary import ComparedNight, HistoriesSummary
from stampede.read.app import make_app
from stampede.read.plots.ledger_bars import CELLS, bar_svg
from stampede.read.summaries import maintenance_state
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity import reconcile_state
from stampede.store.integrity.acceptances.decision import is_decision
from stampede.store.integrity.ledger import expect
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.parquet.checksums import write
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.table import Table
from tests.support.alerts.lost_detector import LOST, NIGHTS, lost, received
from tests.support.events.dead_letters import accept, event, put_letters
from tests.support.proofs import bodies, settings_in
from tests.support.read.html_page import html
from tests.support.read.read_service import Reader, fill, sample_cutouts, sample_points, serving
from tests.support.store.stored_packets import store
from tests.support.store.watched_objects import Forwarding

TOPIC = ("ztf", 0)


def filled(offsets) -> MemoryObjects:
    objects = MemoryObjects()
    fill(objects, sample_cutouts(), sample_points(), Coverage.of({TOPIC: offsets}))
    return objects


def refuse(objects: MemoryObjects, offset: int, reason: str) -> None:
    row = {"topic": "ztf", "partition": 0, "offset": offset, "code": "400", "reason": reason}
    rows = pa.Table.from_pylist([row])
    for table in ("cutouts", "detections"):
        coverage = Coverage.of({TOPIC: [offset]})
        data = write(rows, {"stampede.coverage": coverage.to_json(), "stampede.table": table})
        objects.put(f"deadletters/{table}/{offset:032}.parquet", memoryview(data))


def verdict_on(read: Reader) -> tuple[str, str]:
    """Mark and sentence, the same on both pages."""
    pattern = r'<p class="verdict (\w+)">(?:<strong>.*?</strong> )?(.*?)</p>'
    front, page = (re.findall(pattern, html(read(path))[1]) for path in ("/", "/ledger"))
    assert front == page
    return front[0]


def test_the_verdict_turns_red_and_green_again(monkeypatch):
    monkeypatch.setattr(ledger_cache, "MAX_AGE", 0.0)
    monkeypatch.setattr(maintenance_state, "MAX_AGE", 0.0)
    objects = MemoryObjects()
    for read in serving(make_app(Settings(), objects)):
        assert verdict_on(read) == ("empty", "No alert has been received yet.")
        fill(objects, sample_cutouts(), sample_points(), Coverage.of({TOPIC: [0, 1, 3]}))
        missing = "1 alert missing in cutouts{0}; 1 alert missing in detections{0}."
        doubt = " or in flight: Kafka was not asked"
        assert verdict_on(read) == ("bad", missing.format(doubt))
        expect(objects, TOPIC[0], 4)  # of files: nothing is in flight
        assert verdict_on(read) == ("bad", missing.format(""))
        _, text = html(read("/ledger"))
        assert "missing: 2</div>" in text
        assert "3 stored, 0 dead letters, 1 missing" in text
        refuse(objects, 2, "not an alert: <b>junk</b>")
        good = "Each of 4 alerts received is stored or a dead letter."
        assert verdict_on(read) == ("good", good)
        __, text = html(read("/ledger"))
        assert "not an alert: &lt;b&gt;junk&lt;/b&gt;" in text
        assert text.count('class="missing"') == 1  # in the legend
        key = next(info.key for info in objects.list("tables/detections/"))
        whole = objects.get(key)
        objects.put(key, whole[:-1])
        mark, sentence = verdict_on(read)
        assert mark == "bad"
        assert "1 damaged object left out" in sentence


def test_accepted_letters_are_told_apart(monkeypatch):
    """Each alert received is stored, a dead letter, or an accepted dead letter."""
    monkeypatch.setattr(ledger_cache, "MAX_AGE", 0.0)
    monkeypatch.setattr(maintenance_state, "MAX_AGE", 0.0)
    objects = filled([0, 1])
    for table in ("cutouts", "detections"):
        put_letters(objects, event(2, "ztf"), table=table)
    for read in serving(make_app(Settings(), objects)):
        assert verdict_on(read)[1] == "Each of 3 alerts received is stored or a dead letter."
        assert "accepted as rightly refused" not in html(read("/ledger"))[1]
        accept(objects)
        sentence = "Each of 3 alerts received is stored or an accepted dead letter."
        assert verdict_on(read) == ("good", sentence)
        text = html(read("/ledger"))[1]
        assert text.count("accepted as rightly refused") == 2
        assert text.count("<td>3</td><td>2</td><td>1 (1 accepted)</td>") == 2
        assert text.count("2 stored, 1 accepted dead letter, 0 dead letters, 0 missing<") == 2
        assert text.count('class="accepted"') == 3  # and in the legend
        for table in ("cutouts", "detections"):
            put_letters(objects, event(3, "ztf"), event(4, "ztf"), table=table)
        of_both = "is stored or one of 3 dead letters (1 of them accepted)."
        assert verdict_on(read) == ("good", f"Each of 5 alerts received {of_both}")
        for item in read("/v1/ledger").json()["ledger"]:
            assert item["dead_lettered"]["count"] == 3
            assert item["accepted"] == {"count": 1, "intervals": [[2, 3]]}
        accept(objects)
        sentence = "Each of 5 alerts received is stored or one of 3 accepted dead letters."
        assert verdict_on(read) == ("good", sentence)
        for info in [*objects.list("deadletters/")]:
            if not is_decision(info.key):
                objects.delete(info.key)
        assert verdict_on(read) == ("good", sentence)
        assert "There are none." in html(read("/ledger"))[1]


def test_past_nights_are_a_line_each_and_the_others_a_line_for_each_table() -> None:
    """A night that lacks something is with the topics that are read."""
    objects = MemoryObjects()
    nights = [f"ztf_202601{day:02}_programid1@{day}" for day in range(1, 31)]
    nights += [f"ztf_202602{day:02}_programid1@{day + 31}" for day in range(1, 29)]
    whole = {(topic, number): range(5) for topic in nights for number in (0, 1)}
    fill(objects, sample_cutouts(), sample_points(), Coverage.of(whole | {("alerts", 0): [0]}))
    hole = {("ztf_20260131_programid1@31", 0): [0, 2]}
    fill(objects, sample_cutouts(), sample_points(), Coverage.of(hole))
    for read in serving(make_app(Settings(topics="ztf_{YYYYMMDD}_programid1,alerts"), objects)):
        pages = [html(read(f"/ledger?page={number}"))[1] for number in (1, 2, 3)]
        first = html(read("/ledger"))[1]
        assert read("/ledger?page=0").status == 400
    shown = [
        re.sub(r"<.*?>", "", row)
        for page in pages[:2]
        for row in re.findall(r'<td class="text">(ztf.*?)</td>', page.partition('id="past"')[2])
    ]
    assert shown == [night.replace("@", " ") for night in sorted(nights, reverse=True)]
    assert pages[0].count("<td>2</td><td>10</td><td>0</td><td>0</td>") == 50
    assert (first, pages[2]) == (pages[0], pages[1])
    above = first.partition('id="past"')[0]
    rows = re.findall(r'<td class="text">(.*?)</td>.*', above)
    assert [re.sub(r"<.*?>", "", row) for row in rows] == sorted(
        2 * ["alerts", "ztf_20260131_programid1 31"]
    )


def test_dead_letters_that_cannot_be_read_are_told_and_shown_once_they_are_mended(monkeypatch):
    monkeypatch.setattr(maintenance_state, "MAX_AGE", 0.0)
    objects = filled([0, 1])
    refuse(objects, 2, "not an alert: 1")
    keys = [info.key for info in objects.list("deadletters/")]
    whole = {key: objects.get(key) for key in keys}
    random = Random(1)
    for read in serving(make_app(Settings(), objects)):
        for _ in range(40):
            for key, data in whole.items():
                damaged = bytearray(data)
                damaged[random.randrange(len(data))] ^= 1 << random.randrange(8)
                objects.put(key, bytes(damaged))
            got = read("/ledger")
            text = html(got)[1]
            shown = text.count("not an alert: 1<")
            told = re.findall(r"([12]) damaged objects? of dead letters", text)
            assert shown + int((told or "0")[0]) == 2
            assert ("Stampede-Incomplete" in got.headers) == bool(told)
            assert "There are none" not in text
            assert "None can be read" in text or shown
        for key, data in whole.items():
            objects.put(key, data)
        assert html(read("/ledger"))[1].count("not an alert: 1<") == 2


def test_the_page_shows_merges_rounds_and_a_second_site_that_lacks_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance_state, "MAX_AGE", 0.0)
    objects = filled([0, 1])
    fill(objects, sample_cutouts(), sample_points(), Coverage.of({TOPIC: [2]}))
    now = datetime.now(UTC)
    compact(Table(objects, DETECTIONS), now, Policy(fanout=2, run_rows=1000, grace=timedelta(0)))
    reconcile_state.save(objects, "all", reconcile_state.RoundState(now, now))
    second = DirectoryObjects(tmp_path)
    settings = Settings(replica=f"file://{tmp_path}")
    for read in serving(make_app(settings, objects)):
        text = html(read("/ledger"))[1]
        assert re.search(r"merge of detections</dt><dd><time.*?</time>; 1 run, 0 not merged", text)
        assert "merge of cutouts</dt><dd>none yet; 2 runs, 2 not merged" in text
        assert "Last pass of reconcile: all" in text
        assert "3 runs are on their way" in text
        monkeypatch.setattr(maintenance_state, "LATE", timedelta(0))
        assert '<span class="bad">lacks 3 runs' in html(read("/ledger"))[1]
        for table in (CUTOUTS, DETECTIONS):
            for info in objects.list(f"tables/{table.name}/"):
                second.put(info.key, objects.get(info.key))
        assert "has every run" in html(read("/ledger"))[1]


def test_a_second_site_that_does_not_answer_is_named():
    settings = Settings(
        replica="http://127.0.0.1:1/bucket", replica_access_key="a", replica_secret_key="b"
    )
    for read in serving(make_app(settings, filled([0]))):
        text = html(read("/ledger"))[1]
        assert re.search(r'127.0.0.1/bucket</dt><dd><span class="bad">.*cannot connect', text)


def rectangles(svg: str, kind: str) -> list[tuple[int, int]]:
    path = re.search(rf'class="{kind}" d="(.*?)"', svg)
    return [(int(a), int(b)) for a, b in re.findall(r"M(\d+) 0H(\d+)", path[1])] if path else []


def test_a_gap_of_one_offset_in_a_thousand_million_is_seen():
    high = 10**9
    svg = bar_svg(0, high, {"stored": [(0, 500), (501, high)], "missing": [(500, 501)]}, "")
    assert rectangles(svg, "missing") == [(0, 1)]
    assert rectangles(svg, "stored") == [(1, CELLS)]


@given(st.integers(0, 10**12), st.lists(st.sampled_from("sdfm"), min_size=1, max_size=900))
def test_a_bar_has_each_kind_that_a_partition_has(low, offsets):
    kinds = {"s": "stored", "d": "dead", "f": "flight", "m": "missing"}
    spans = {
        kind: [(low + at, low + at + 1) for at, one in enumerate(offsets) if one == letter]
        for letter, kind in kinds.items()
    }
    svg = bar_svg(low, low + len(offsets), spans, "")
    every = sorted(one for kind in kinds.values() for one in rectangles(svg, kind))
    assert every[0][0] == 0
    assert every[-1][1] == CELLS
    assert all(a[1] == b[0] for a, b in pairwise(every))  # no cell is empty
    assert ("m" in offsets) == bool(rectangles(svg, "missing"))


def test_a_damaged_number_of_files_is_not_left_out_unsaid():
    objects = filled([0])
    expect(objects, "files-1", 7)
    key = "expected/files-1"
    objects.put(key, objects.get(key)[:-1] + b"9")
    for read in serving(make_app(Settings(), objects)):
        response = read("/v1/ledger")
        (damaged,) = json.loads(response.data)["damaged"]
        assert damaged["key"] == key
        assert "does not hold the number" in damaged["why"]
        assert response.headers["Stampede-Incomplete"] == "1 damaged object"
        assert "1 damaged object left out" in html(read("/"))[1]
        assert key in html(read("/ledger"))[1]


class Counting(Forwarding):
    """A store that counts the readings of what histories know."""

    readings = 0

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        self.readings += prefix == histories_summary.FOLDER
        return super().list(prefix, after)


def keep_histories(objects: MemoryObjects, missing: dict[str, int]) -> None:
    """Let a night lack these detections, by cause, of no detector in particular."""
    at = datetime.now(UTC)
    night = ComparedNight("ztf", 60800, 50_000, missing, 0, [])
    histories_summary.save(objects, HistoriesSummary(at, [60800], 1, "", at, [night]))


def section(read: Reader) -> str:
    """What the page says of histories, without tags; empty if it does not."""
    text = html(read("/ledger"))[1]
    found = re.search(r'<section id="histories">.*?</section>', text, re.DOTALL)
    return " ".join(re.sub(r"<.*?>", " ", found[0]).split()) if found else ""


def test_a_detector_that_never_came_is_named(tmp_path) -> None:
    settings = settings_in(tmp_path)
    store(settings, bodies(received()))
    objects = Counting(open_objects(settings))
    for read in serving(make_app(settings, objects)):
        assert section(read) == ""
        assert read("/v1/ledger").json()["histories"] is None
    compare_histories(objects, settings)
    objects.readings = 0
    ids = [str(alert_id) for alert_id in sorted(alert.alert_id for alert in lost())]
    for read in serving(make_app(settings, objects)):
        text = section(read)
        assert re.search(r"^What histories know as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC ", text)
        assert "26 Nov 2025 lsst 15 16 " in text
        assert "26 Nov 2025 ztf 24 0 " in text
        assert f"{LOST.visit} {LOST.detector} 16 0 {', '.join(ids[:3])}, …" in text
        known = read("/v1/ledger").json()["histories"]
        assert known["made"] == known["last_attempt"]
        assert known["error"] is None
        [night] = [each for each in known["nights"] if each["missing"]]
        assert (night["survey"], night["night"], night["came"]) == ("lsst", NIGHTS[0], 15)
        assert (night["missing"], night["lacking_detectors"]) == ({"unexplained": 16}, 1)
        worst = {"visit": LOST.visit, "detector": LOST.detector, "missing": 16, "came": 0}
        assert night["worst"] == [worst | {"ids": ids[:3]}]
        assert section(read) == text
        assert "none saved: a small store" in html(read("/ledger"))[1]  # that is no round
    assert objects.readings == 1


def test_a_table_that_cannot_be_read_is_told_where_histories_are(tmp_path) -> None:
    """What was known before stays."""
    settings = settings_in(tmp_path)
    store(settings, bodies(received()))
    objects = open_objects(settings)
    compare_histories(objects, settings)
    run = next(objects.list("tables/cutouts/"))
    objects.put(run.key, bytes(objects.get(run.key))[:-9])
    with suppress(Damaged):
        compare_histories(objects, settings, everything=True)
    for read in serving(make_app(settings, objects)):
        text = section(read)
        assert f"did not compare the last nights: {run.key}: " in text
        assert f"{LOST.visit} {LOST.detector} 16 0 " in text
        assert run.key in read("/v1/ledger").json()["histories"]["error"]


def test_likely_causes_are_shown_without_an_accusation() -> None:
    objects = filled([0])
    keep_histories(objects, {"below the cut": 1200, "processed later": 3})
    for read in serving(make_app(Settings(), objects)):
        text = section(read)
        assert "ztf 50,000 0 1,200 below the cut, 3 processed later" in text
        assert "visit" not in text
