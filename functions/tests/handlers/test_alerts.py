"""`cutouts` and `lightcurves` as processes: good alerts are stored, bad ones get a reason.

One file for both modules, as they differ only in what they store.
"""

import base64
import gzip
import io
import json
import math
import random
import signal
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.deadletters.dead_letter import reason_of
from stampede.images.fits import unpack
from stampede.store.integrity.dead_letter_offsets import dead_lettered
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, PACKETS
from stampede.store.tables.table import Table
from stampede_local.demo import oracle
from stampede_local.process import wait_until
from tests.support.alerts import made_alerts
from tests.support.alerts.fits_files import fits_of
from tests.support.alerts.hostile_alerts import HOSTILE
from tests.support.served import metrics
from tests.support.store.located import stored_image

# Seconds for a message that kills two workers: 5 on a quiet machine.
LONGEST_WAIT = 25
FUNCTIONS = {"cutouts": CUTOUTS, "lightcurves": DETECTIONS}


def lsst(seed: int) -> bytes:
    return made_alerts.confluent(made_alerts.rubin_record(1101, seed), 1101)


def send_all(served, messages: list[bytes]) -> list:
    with ThreadPoolExecutor(64) as pool:
        return list(pool.map(lambda each: served.post(*each), enumerate(messages)))


def table_of(served, name: str) -> Table:
    return Table(open_objects(served.settings), FUNCTIONS[name])


@pytest.mark.integration
def test_cutouts_come_back_unchanged(serve) -> None:
    served = serve("cutouts")
    messages = [lsst(seed) for seed in range(20)] + [made_alerts.ztf_alert(c) for c in range(1, 20)]
    assert {response.status for response in send_all(served, messages)} == {204}
    table, objects = table_of(served, "cutouts"), open_objects(served.settings)
    places = table.lookup([oracle.head(m)["alert_id"] for m in messages]).to_pylist()
    found = {(p["survey"], p["alert_id"], p["kind"]): p for p in places}
    assert len(found) == 3 * len(messages)
    for message in messages:
        head = oracle.head(message)
        for kind, fits in oracle.cutouts(message).items():
            place = found[head["survey"], head["alert_id"], kind]
            if fits is None:
                assert place["pack"] is None
            else:
                assert unpack(stored_image(objects, place)) == fits
    assert table.coverage().intervals("alerts", 0) == [(0, len(messages))]


@pytest.mark.integration
def test_lightcurves_keeps_each_message_with_what_came_beside_it(serve) -> None:
    served = serve("lightcurves")
    messages = [lsst(seed) for seed in range(5)] + [made_alerts.ztf_alert(c) for c in range(1, 5)]
    beside = {
        **{"ce-time": "2026-03-01T04:05:06.789Z", "ce-partitionkey": "k%C3%A9"},
        "ce-kafkaheadertrace": "a%20b",
    }
    for offset, message in enumerate(messages):
        assert served.post(offset, message, **beside).status == 204
    objects = open_objects(served.settings)
    packs = [pq.read_table(io.BytesIO(objects.get(i.key))) for i in objects.list("packets/")]
    rows = sorted(pa.concat_tables(packs).to_pylist(), key=lambda row: row["offset"])
    assert [row["framed_crc32"] for row in rows] == [zlib.crc32(message) for message in messages]
    assert [row["crc32"] for row in rows] == [*map(made_alerts.record_crc32, messages)]
    for offset, row in enumerate(rows):
        assert (row["topic"], row["partition"], row["offset"]) == ("alerts", 0, offset)
        assert (row["key"], json.loads(row["headers"])) == ("ké", {"trace": "a b"})
        assert row["time"].isoformat(timespec="milliseconds") == "2026-03-01T04:05:06.789+00:00"
    assert Table(objects, PACKETS).coverage() == table_of(served, "lightcurves").coverage()


@pytest.mark.integration
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch_leaves_the_spool_whatever_was_in_it(serve, name: str) -> None:
    """Else a full spool stays full: the worker that fills it gets no batch that would free it."""
    served = serve(name)
    good, bad = lsst(1), made_alerts.contained([{"x": 1}], made_alerts.row_type("x", {"x": "int"}))
    late = made_alerts.ztf_alert(candidate=candidate(jd=0.0))
    for batch in ([good, b"noise"], [good, bad], [bad], [late, good], [b""], [good]):
        send_all(served, batch)
        wait_until(lambda: not batches_held(served.process.pid), served.process, 5)


def batches_held(server: int) -> list[str]:
    """Files of batches that a function's workers hold open; the function keeps its own for more."""
    names: list[str] = []
    for process in psutil.Process(server).children():
        with suppress(FileNotFoundError, psutil.NoSuchProcess):
            for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    names.append(str(descriptor.readlink()))
    return [name for name in names if ".batch" in name]


@pytest.mark.integration
def test_a_light_curve_grows_and_repeats_nothing(serve) -> None:
    served = serve("lightcurves")
    record = made_alerts.ztf_record()
    candidates = [record["candidate"] | {"candid": n, "jd": 2459000.5 + n} for n in range(1, 30)]
    messages = [
        made_alerts.contained(
            [
                made_alerts.ztf_record(n)
                | {"candidate": candidates[n - 1], "prv_candidates": candidates[: n - 1]}
            ],
            made_alerts.ztf_schema(),
        )
        for n in range(1, 30)
    ]
    random.Random(1).shuffle(messages)
    for part in (messages[:10], messages[5:], messages):
        assert {response.status for response in send_all(served, part)} == {204}
    rows = table_of(served, "lightcurves").lookup(["ZTF18aaaaaaa"])
    assert sorted(rows["source_id"].to_pylist()) == list(range(1, 30))
    assert rows["reliability"].to_pylist() == pytest.approx([0.9] * 29)

    objects = open_objects(served.settings)
    raw = [pq.read_table(io.BytesIO(objects.get(o.key))) for o in objects.list("alerts/ztf/")]
    alerts = pa.concat_tables(raw)
    assert set(alerts["candid"].to_pylist()) == set(range(1, 30))
    assert "prv_candidates" not in alerts.column_names


def long_history() -> bytes:
    """100,000 rows of history in a container that deflate makes a few hundred kilobytes."""
    row = made_alerts.ztf_record()["candidate"] | {"jd": 2459000.5}
    rows = [row | {"candid": n} for n in range(1, 100_001)]
    return made_alerts.ztf_alert(7, "deflate", prv_candidates=rows)


def foreign() -> bytes:
    schema = made_alerts.row_type("pgir.alert", {"candid": "long", "candidate": "long"})
    return made_alerts.contained([{"candid": 5, "candidate": 6}], schema)


def candidate(**values) -> dict:
    return made_alerts.ztf_record()["candidate"] | values


def bad_inputs() -> dict[str, tuple[bytes, int, str]]:
    """Message, status, and text in the response, by name."""
    good = lsst(1)
    nan = made_alerts.contained(
        [made_alerts.ztf_record(math.nan)], made_alerts.ztf_schema(candid="double")
    )
    other = made_alerts.confluent(made_alerts.rubin_record(704, 1), 704)
    future = made_alerts.rubin_record(1101, 3)
    future["diaSource"]["midpointMjdTai"] = 99999.0
    return {
        "truncated": (good[: len(good) * 2 // 3], 400, ""),
        "trailing byte": (good + b"\0", 400, "left over"),
        "zeros": (bytes(2000), 400, "unknown schema id 0"),
        "zeros in a frame": (good[:5] + bytes(30000), 400, ""),
        "empty": (b"", 400, "empty"),
        "wrong magic": (b"PK\3\4" + good, 400, "begins with 0x504b0304"),
        "unknown schema id": (b"\0\0\0\x27\x0f" + good[5:], 400, "unknown schema id 9999"),
        "another schema's id": (good[:5] + other[5:], 400, ""),
        "2^60 nulls": (HOSTILE["2^60 nulls"](), 400, "take no bytes"),
        "2^60 floats": (HOSTILE["2^60 floats"](), 400, ""),
        "26,000 types": (HOSTILE["26,000 types"](), 400, "the limit is"),
        "10,000 types": (HOSTILE["10,000 types"](), 400, "more than 1,000 types"),
        "foreign": (foreign(), 422, "this is a PGIR alert (schema pgir.alert)"),
        "long object id": (made_alerts.ztf_alert(objectId="Z" * 5000), 422, "1 to 64 letters"),
        "jd 0": (made_alerts.ztf_alert(candidate=candidate(jd=0.0)), 422, "before MJD 33282"),
        "programme 2": (
            made_alerts.ztf_alert(candidate=candidate(programid=2)),
            422,
            "programid is not one that is stored here (1)",
        ),
        "20 MB": (good + bytes(20_000_000), 413, "the limit is"),
        "nan id": (nan, 422, "no id"),
        "future": (made_alerts.confluent(future, 1101), 422, "in the future"),
    }


@pytest.mark.integration
@pytest.mark.parametrize("function", FUNCTIONS)
def test_bad_input_among_good(serve, function: str) -> None:
    """Each bad message gets its status and its reason; every good one beside it is stored."""
    served = serve(function, DECODE_SECONDS=1)
    bad = bad_inputs()
    if function == "cutouts":
        record = made_alerts.rubin_record(1101, 4) | {"cutoutScience": b"GIF89a"}
        stamp = {"fileName": "x", "stampData": gzip.compress(fits_of(1025, 1025, 8))}
        bad["pixels"] = made_alerts.ztf_alert(cutoutScience=stamp), 422, "1,050,625 pixels"
        bad["not FITS"] = made_alerts.confluent(record, 1101), 422, "is not FITS"
    else:
        row = candidate(jd=0.0, candid=4)
        bad["history"] = made_alerts.ztf_alert(prv_candidates=[row]), 422, "detection with id 4"
    misleading = made_alerts.rubin_record(1101, 5) | {
        "cutoutScience": made_alerts.FITS + bytes(20_000)
    }
    misleading["diaSource"]["band"] = made_alerts.FORGED
    good = [lsst(seed) for seed in range(200)] + [made_alerts.confluent(misleading, 1101)]
    messages = good + [message for message, _, _ in bad.values()]
    random.Random(2).shuffle(messages)
    responses = dict(zip(messages, send_all(served, messages), strict=True))
    for name, (message, status, reason) in bad.items():
        response = responses[message]
        assert response.status == status, (name, response.data)
        problem = json.loads(response.data)
        assert reason in problem["detail"], name
        assert "event partition:0/offset:" in problem["detail"] or status == 413
    assert {responses[message].status for message in good} == {204}
    assert served.process.running
    stored = table_of(served, function).coverage()
    assert len(stored) == len(good)


@pytest.mark.integration
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_history_of_100000_rows(serve, function: str) -> None:
    served = serve(function)
    assert served.post(0, long_history()).status == 204
    family = [
        psutil.Process(served.process.pid),
        *psutil.Process(served.process.pid).children(True),
    ]
    assert sum(process.memory_info().rss for process in family) < 1.5e9
    if function == "lightcurves":
        assert len(table_of(served, function).lookup(["ZTF18aaaaaaa"])) == 100_000


@pytest.mark.integration
def test_requests_without_an_event(serve) -> None:
    served = serve("cutouts")
    bare = served.http.request("POST", served.url, body=lsst(1))
    assert (bare.status, b"no ce- headers" in bare.data) == (400, True)
    nameless = served.post(1, lsst(1), **{"ce-id": ""})
    assert nameless.status == 400
    assert b"id" in nameless.data
    assert served.http.request("GET", served.url).status == 200


@pytest.mark.integration
def test_sigterm_drains(serve) -> None:
    """Events already sent are answered and stored, although no batch had begun."""
    served = serve("cutouts", LINGER_MS=10_000)
    messages = [lsst(n) for n in range(20)]
    with ThreadPoolExecutor(20) as pool:
        responses = [pool.submit(served.post, n, message) for n, message in enumerate(messages)]
        wait_until(lambda: held(served) == sum(map(len, messages)), served.process)
        psutil.Process(served.process.pid).send_signal(signal.SIGTERM)
        statuses = {response.result().status for response in responses}
    assert statuses == {204}
    while served.process.running:
        time.sleep(0.05)
    assert served.process.status == 0
    assert len(table_of(served, "cutouts").coverage()) == 20


def held(served) -> float:
    lines = metrics(served).decode().splitlines()
    found = [line for line in lines if line.startswith("stampede_held_bytes{")]
    return float(found[0].split()[-1]) if found else 0.0


@pytest.mark.integration
def test_store_down_is_503(serve, tmp_path) -> None:
    served = serve("cutouts", STORE="http://127.0.0.1:1/bucket")
    response = served.post(0, lsst(0))
    assert response.status == 503
    assert b"store-down" in response.data


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (None, None),
        (base64.b64encode(b'{"detail": "no alert"}').decode(), "no alert"),
        (base64.b64encode(b"Bad Request").decode(), "Bad Request"),
        (base64.b64encode(b"[1]").decode(), "[1]"),
        ("not base64", "not base64"),
        ("/////w==", "/////w=="),
    ],
)
def test_the_reason_of_a_dead_letter_is_readable(response: str | None, reason: str | None) -> None:
    assert reason_of(response) == reason


@pytest.mark.integration
def test_dead_letters_keep_bytes_attributes_and_reason(serve) -> None:
    served = serve("deadletters")
    problem = json.dumps({"title": "undecodable", "detail": "alert 7: it is cut off"})
    reason = {
        "ce-knativeerrordest": "http://cutouts/",
        "ce-knativeerrorcode": "400",
        "ce-knativeerrordata": base64.b64encode(problem.encode()).decode(),
    }
    message = b"\0\0not an alert"
    assert served.post(7, message, "/cutouts", **reason, **{"ce-kafkaheaderx": "1"}).status == 204
    assert served.post(8, b"", "/detections", **reason).status == 204
    assert served.post(9, message, "/nowhere", **reason).status == 400
    objects = open_objects(served.settings)
    (letter,) = objects.list("deadletters/cutouts/")
    (row,) = pq.read_table(io.BytesIO(objects.get(letter.key))).to_pylist()
    assert (row["topic"], row["partition"], row["offset"]) == ("alerts", 0, 7)
    assert row["data"] == message
    assert (row["code"], row["reason"]) == ("400", "alert 7: it is cut off")
    attributes = json.loads(row["attributes"])
    assert attributes["knativeerrordest"] == "http://cutouts/"
    assert attributes["kafkaheaderx"] == "1"
    assert dead_lettered(objects, "cutouts").intervals("alerts", 0) == [(7, 8)]
    assert dead_lettered(objects, "detections").intervals("alerts", 0) == [(8, 9)]


@pytest.mark.integration
def test_an_alert_too_large_for_a_function_is_still_a_dead_letter(serve) -> None:
    served = serve("deadletters", MAX_ALERT_BYTES=1000)
    assert served.post(7, bytes(5_000_000), "/cutouts").status == 204
    objects = open_objects(served.settings)
    assert dead_lettered(objects, "cutouts").intervals("alerts", 0) == [(7, 8)]


@pytest.mark.integration
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_message_that_never_ends_harms_nobody_else(serve, function: str) -> None:
    """It is refused for good within seconds, and its neighbours wait for that at most once."""
    served = serve(function)
    for round_, (name, make) in enumerate(HOSTILE.items()):
        good = [lsst(100 * round_ + seed) for seed in range(20)]
        messages = [*good[:10], make(), *good[10:]]
        begin = time.monotonic()
        with ThreadPoolExecutor(64) as pool:
            each = [(1000 * round_ + n, message) for n, message in enumerate(messages)]
            responses = list(pool.map(lambda one: served.post(*one), each))
        seconds = time.monotonic() - begin
        refused = responses.pop(10)
        assert 400 <= refused.status < 500, (name, refused.data)
        assert len(json.loads(refused.data)["detail"]) < 1000
        assert {response.status for response in responses} == {204}, name
        assert seconds < LONGEST_WAIT, name
        print(function, name, f"{seconds:.1f} s", json.loads(refused.data)["detail"])
    assert len(table_of(served, function).coverage()) == 20 * len(HOSTILE)


@pytest.mark.integration
@pytest.mark.parametrize("name", FUNCTIONS)
def test_alerts_that_decompress_to_hundreds_of_megabytes_take_little_memory(
    serve, name: str
) -> None:
    """18 KB as sent, 12 MB each: within the bounds of one alert, 300 MB together."""
    served = serve(name, WORKER_MEMORY=900 << 20, LINGER_MS=2000)
    image = {"fileName": "zeros", "stampData": fits_of(1000, 1000, 32)}
    images = dict.fromkeys(("cutoutScience", "cutoutTemplate", "cutoutDifference"), image)
    messages = [made_alerts.ztf_alert(n, "deflate", **images) for n in range(1, 26)]
    assert sum(map(len, messages)) < 500_000
    assert {response.status for response in send_all(served, messages)} == {204}
    assert b"stampede_worker_deaths_total{" not in metrics(served)
    assert table_of(served, name).coverage().intervals("alerts", 0) == [(0, 25)]
