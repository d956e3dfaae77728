"""An alert as the survey sent it: its message, byte for byte."""

import io
import itertools
import math
import socket
import tarfile
import time
import unittest.mock
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from stampede.alerts.columns import KINDS
from stampede.alerts.isolation import Isolation
from stampede.config.settings import Settings
from stampede.errors import Damaged, Undecodable
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves
from stampede.lookup import alert_fields
from stampede.lookup.lookup import FEW, PACKET_MISS_AGE, Lookup
from stampede.lookup.packs import images
from stampede.lookup.stored_records import MOST_BYTES, REGISTRY_SECONDS, StoredRecords
from stampede.read.app import make_app
from stampede.runtime.clock import now_mjd
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.packs.pack_name import night_of
from stampede.store.runs.schema import CUTOUTS, PACKETS
from stampede.store.tables.table import Table
from stampede_local.demo import oracle
from tests.support.alerts import fits_files, made_alerts
from tests.support.alerts.fits_files import source
from tests.support.alerts.made_alerts import record_crc32
from tests.support.read.read_service import Reader, serving
from tests.support.store.stored_packets import FIELDS, store
from tests.support.store.watched_objects import Changed, Watched


def stamp(seed: int) -> dict:
    return {"fileName": f"{seed}.fits.gz", "stampData": fits_files.ztf(source(seed=seed))}


def ztf(candid: int, codec: str = "null", /, **changes) -> bytes:
    images = {name: stamp(seed) for seed, name in enumerate(FIELDS)}
    return made_alerts.ztf_alert(candid, codec, **images | changes)


MADE = {
    "lsst": made_alerts.confluent(made_alerts.rubin_record(1101, 3), 1101),
    "an old lsst schema": made_alerts.confluent(made_alerts.rubin_record(400, 4), 400),
    "ztf": ztf(1),
    "three equal images": ztf(6, **dict.fromkeys(FIELDS, stamp(1))),
    "small images": made_alerts.ztf_alert(7),
    "deflate": ztf(2, "deflate"),
    "snappy": ztf(3, "snappy"),
    "no images": ztf(4, cutoutScience=None, cutoutTemplate=None, cutoutDifference=None),
    "one image": ztf(5, cutoutScience=None, cutoutDifference=None),
}


@pytest.fixture
def read(settings: Settings) -> Iterator[Reader]:
    yield from serving(make_app(settings))


def path_of(message: bytes) -> str:
    head = oracle.head(message)
    return f"/v1/alerts/{head['alert_id']}/packet?survey={head['survey']}"


def check(read: Reader, message: bytes) -> None:
    got = read(path_of(message))
    assert (got.status, got.data == message) == (200, True)
    assert got.headers["content-type"] == "application/avro"
    assert "immutable" in got.headers["cache-control"]


def test_every_message_comes_back_byte_for_byte(settings: Settings, read: Reader) -> None:
    store(settings, list(MADE.values()))
    for message in MADE.values():
        check(read, message)


@pytest.mark.long
@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="needs the real alerts")
def test_real_messages_come_back_byte_for_byte(settings: Settings, read: Reader) -> None:
    messages = made_alerts.real_alerts()
    store(settings, messages)
    for message in messages:
        check(read, message)
    sizes = {
        prefix: sum(info.size for info in open_objects(settings).list(prefix))
        for prefix in ("packs/", "packets/")
    }
    # The images are in the packs alone: of 72 KB a message the packets keep a fifth.
    assert sizes["packets/"] < 0.2 * sizes["packs/"]


def test_a_batch_decoded_with_care_has_the_same_packets(settings: Settings, read: Reader) -> None:
    """A neighbour that makes the batch fail: the images do not come as views of the messages."""
    messages = [*MADE.values(), b"no alert"]
    positions = [Position("alerts@0", 0, number) for number in range(len(messages))]
    for function in (cutouts, lightcurves):
        work = function.make_batch_storer(settings)
        outcomes = work(Batch(messages, positions, Isolation.CHECKED)).outcomes
        assert [outcome is None for outcome in outcomes] == [True] * len(MADE) + [False]
    for message in MADE.values():
        check(read, message)


def test_a_message_is_served_in_parts_and_only_once(settings: Settings, read: Reader) -> None:
    store(settings, [MADE["lsst"]])
    path = path_of(MADE["lsst"])
    tag = read(path).headers["etag"]
    assert read(path, headers={"If-None-Match": tag}).status == 304
    part = read(path, headers={"Range": "bytes=1-9"})
    assert (part.status, part.data) == (206, MADE["lsst"][1:10])


def test_the_images_of_a_message_take_one_request(settings: Settings) -> None:
    messages = [MADE["lsst"], MADE["ztf"]]
    store(settings, messages)
    objects = Watched(open_objects(settings))
    for read in serving(make_app(settings.model_copy(update={"refresh_seconds": 600}), objects)):
        for message in messages:
            check(read, message)  # from now on runs and tails are in memory
            before = len(objects.calls)
            check(read, message)
            asked = [(what, key.split("/")[0]) for what, key in objects.calls[before:]]
            assert asked == [("get", "packets"), ("get", "packs")]


@pytest.mark.parametrize("at", [0, 30, -1])
def test_images_that_came_damaged_are_read_again(settings: Settings, at: int) -> None:
    store(settings, [MADE["lsst"]])
    good = math.inf  # answers before the one that is damaged

    def flip(data: bytes) -> bytes:
        nonlocal good
        good -= 1
        if good + 1:
            return data
        damaged = bytearray(data)
        damaged[at] ^= 16
        return bytes(damaged)

    objects = Changed(open_objects(settings), read=flip)
    for read in serving(make_app(settings.model_copy(update={"refresh_seconds": 600}), objects)):
        check(read, MADE["lsst"])
        good = 1  # that with the packet; the next has the page of the images
        check(read, MADE["lsst"])
        assert good < 0


def test_an_alert_of_two_surveys_needs_the_name_of_one(settings: Settings, read: Reader) -> None:
    rubin = made_alerts.rubin_record(1101, 3)
    number = rubin["diaSource"]["diaSourceId"]
    store(settings, [made_alerts.confluent(rubin, 1101), ztf(number)])
    got = read(f"/v1/alerts/{number}/packet")
    assert (got.status, got.json()["type"]) == (400, "urn:stampede:problem:ambiguous-alert")
    assert read(f"/v1/alerts/{number}/packet?survey=ztf").data == ztf(number)


def problem(read: Reader, alert_id: int) -> tuple[int, str]:
    got = read(f"/v1/alerts/{alert_id}/packet")
    assert got.headers["cache-control"] == "no-store"
    return got.status, got.json()["type"].rpartition(":")[2]


def test_why_there_is_no_packet(settings: Settings, read: Reader) -> None:
    store(settings, [ztf(1)], functions=[cutouts])
    store(settings, [ztf(2)], functions=[lightcurves])
    assert problem(read, 99) == (404, "unknown-alert")
    assert problem(read, 1) == (404, "no-packet")  # stored without one
    assert problem(read, 2) == (404, "no-packet")  # without its images, for now or for good
    detail = read("/v1/alerts/2/packet").json()["detail"]
    assert "it is stored later, or `cutouts` refused the alert" in detail
    store(settings, [ztf(2)], functions=[cutouts])
    check(read, ztf(2))


def test_a_point_that_comes_again_under_another_object_is_in_both_light_curves(
    settings: Settings, read: Reader
) -> None:
    """As docs/store.md says: the alert names the new object, and nothing marks the old point."""
    record = made_alerts.rubin_record(1101, 3) | {"prvDiaSources": None}
    record |= {"prvDiaForcedSources": None}
    record["diaSource"] |= {"ssObjectId": None, "timeWithdrawnMjdTai": None}
    for number, name in enumerate((11, 22)):
        record["diaSource"] |= {"diaObjectId": name, "timeProcessedMjdTai": 60000.0 + number}
        store(settings, [made_alerts.confluent(record, 1101)], number)
    alert_id = str(record["diaSource"]["diaSourceId"])
    assert read(f"/v1/alerts/{alert_id}").json()["object_id"] == "22"
    for name in (11, 22):
        (found,) = read(f"/v1/objects/{name}/lightcurve").json()["detections"]
        assert (found["source_id"], found["withdrawn"]) == (alert_id, False)


def other_images(seed: int) -> dict:
    return {name: stamp(seed + number) for number, name in enumerate(FIELDS)}


def versions() -> list[bytes]:
    """One alert sent three times with other images, and once without any, by CRC-32."""
    none: dict = dict.fromkeys(FIELDS)
    sent = [ztf(1), ztf(1, **other_images(10)), ztf(1, **other_images(20)), ztf(1, **none)]
    return sorted(sent, key=record_crc32)


@pytest.fixture(scope="module")
def science(tmp_path_factory: pytest.TempPathFactory) -> dict[bytes, bytes]:
    """Each version that has images, and what is served if it is the only one."""
    served = {}
    for one in (one for one in versions() if len(one) > 10_000):
        folder = tmp_path_factory.mktemp("alone")
        settings = Settings(store=f"file://{folder}/store", spool=folder, refresh_seconds=0)
        store(settings, [one])
        for alone in serving(make_app(settings)):
            served[one] = alone("/v1/alerts/1/cutouts/science").data
    return served


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("together", [False, True])
def test_versions_of_an_alert_with_other_images(
    settings: Settings,
    read: Reader,
    science: dict[bytes, bytes],
    order: Sequence[int],
    together: bool,
) -> None:
    """Whatever came first, the packet is one that was sent, and the cutouts are those in it."""
    sent = list(science)
    for function in (cutouts, lightcurves):  # each takes its own batches, in an order of its own
        messages = [sent[number] for number in order]
        batches = [messages] if together else [[one] for one in messages]
        for batch in batches if function is cutouts else reversed(batches):
            store(settings, batch, messages.index(batch[0]), functions=[function])
    check(read, sent[-1])
    assert read("/v1/alerts/1/cutouts/science").data == science[sent[-1]]
    fields = read("/v1/alerts/1").json()
    assert len(fields["cutouts"]) == 3
    with tarfile.open(fileobj=io.BytesIO(read("/v1/cutouts", "POST", b"1").data)) as tar:
        names = sorted(tar.getnames())
    assert names == [*(f"1/{kind}.fits.gz" for kind in sorted(KINDS)), "missing.json"]


def test_a_version_that_one_function_lacks(settings: Settings, read: Reader) -> None:
    first, *_, last = [one for one in versions() if len(one) > 10_000]
    store(settings, [first])
    store(settings, [last], 1, functions=[cutouts])
    check(read, first)
    store(settings, [last], 1, functions=[lightcurves])
    check(read, last)
    other = ztf(1, **other_images(30))
    store(settings, [other], 2, functions=[lightcurves])
    check(read, last)  # the images of the other one are not stored


def test_an_image_is_shown_rather_than_none(settings: Settings, read: Reader) -> None:
    none: dict = dict.fromkeys(FIELDS)
    measured = made_alerts.ztf_record(1)["candidate"]
    bare = [ztf(1, **none, candidate=measured | {"magpsf": 15.0 + number}) for number in range(20)]
    store(settings, bare)
    store(settings, [ztf(1)], 20)
    assert read("/v1/alerts/1/cutouts/science").status == 200
    assert record_crc32(ztf(1)) < max(map(record_crc32, bare))
    check(read, max(bare, key=record_crc32))


def of_night(mjd: float, seed: int) -> bytes:
    """Alert 1 of that time with images of its own."""
    return ztf(1, candidate=measured() | {"jd": 2400000.5 + mjd}, **other_images(seed))


def measured() -> dict:
    return made_alerts.ztf_record(1)["candidate"]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_version_that_is_kept_is_shown_rather_than_one_that_is_gone(
    settings: Settings, reverse: bool
) -> None:
    settings = settings.model_copy(update={"cutout_days": 10, "packet_days": 10})
    today = int(now_mjd())
    kept = of_night(today - 2.5, 100)
    early = (of_night(today - 12.5, seed) for seed in range(1, 50))
    gone = next(one for one in early if record_crc32(one) > record_crc32(kept))
    for number, message in enumerate((kept, gone) if reverse else (gone, kept)):
        store(settings, [message], number)
    objects = open_objects(settings)
    deleted = [info.key for info in objects.list("pack") if night_of(info.key) == today - 13]
    assert len(deleted) == 2
    for deletes in (False, True):  # a pack past its retention may be there until it is deleted
        for key in deleted if deletes else ():
            objects.delete(key)
        for read in serving(make_app(settings)):
            check(read, kept)
            assert read("/v1/alerts/1/cutouts/science").status == 200
            assert int(read("/v1/alerts/1").json()["mjd"]) == today - 3
            with tarfile.open(fileobj=io.BytesIO(read("/v1/cutouts", "POST", b"1").data)) as tar:
                assert {f"1/{kind}.fits.gz" for kind in KINDS} <= {*tar.getnames()}


@pytest.mark.parametrize(("days", "shown"), [(None, 3), (10, 1)])
def test_all_cutouts_are_those_of_one_message(
    settings: Settings, days: int | None, shown: int
) -> None:
    """That with the most images, as far as they are kept."""
    settings = settings.model_copy(update={"cutout_days": days})
    today = int(now_mjd())
    only = {"cutoutScience": stamp(70), "cutoutTemplate": None, "cutoutDifference": None}
    few = ztf(1, candidate=measured() | {"jd": 2400000.5 + today - 2.5}, **only)
    early = (of_night(today - 12.5, seed) for seed in range(1, 50))
    all_kinds = next(one for one in early if record_crc32(one) < record_crc32(few))
    store(settings, [all_kinds])
    store(settings, [few], 1)
    alone = settings.model_copy(update={"store": f"{settings.store}-alone"})
    store(alone, [all_kinds if shown == 3 else few])
    for one in serving(make_app(settings)):
        for other in serving(make_app(alone.model_copy(update={"cutout_days": None}))):
            cutouts_shown = one("/v1/alerts/1").json()["cutouts"].values()
            assert sum(each is not None for each in cutouts_shown) == shown
            for kind in KINDS:
                both = [read(f"/v1/alerts/1/cutouts/{kind}") for read in (one, other)]
                assert both[0].status == both[1].status
                assert both[0].status == 404 or both[0].data == both[1].data


def test_many_versions_in_one_batch_can_be_read(
    settings: Settings, read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are, a page is no larger than one message may be."""
    sent = [ztf(1, **other_images(seed)) for seed in range(1, 60, 3)]
    monkeypatch.setattr(images, "MOST_PAGE", 3 * len(sent[0]))
    store(settings, sent)
    check(read, max(sent, key=record_crc32))
    assert read("/v1/alerts/1/cutouts/science").status == 200


def test_only_the_images_of_a_message_are_read_for_it(settings: Settings) -> None:
    sent = [one for one in versions() if len(one) > 10_000]
    store(settings, sent)
    lookup = Lookup(open_objects(settings), settings)
    try:
        for crc32 in map(record_crc32, sent):
            wanted = {(1, "ztf", kind, crc32) for kind in KINDS}
            assert lookup.images_of([(1, "ztf", crc32)]).keys() == wanted
            assert lookup.parts_of([(1, "ztf", crc32)]).keys() == wanted
    finally:
        lookup.close()


def test_thousands_of_versions_do_not_hold_up_other_requests(settings: Settings) -> None:
    store(settings, [ztf(1)])
    table = Table(open_objects(settings), CUTOUTS)
    rows = table.lookup([1])
    lookup = Lookup(table.objects, settings.model_copy(update={"refresh_seconds": 1000}))
    try:
        found = lookup.alert(1)
        assert lookup.cached_alert(1) == found
        at = rows.schema.get_field_index("message_crc32")
        many = pa.concat_tables(
            rows.set_column(at, rows.schema.field(at), pa.array([number] * 3, pa.uint32()))
            for number in range(FEW // 3)
        )
        table.append(many, Coverage())
        lookup.cutouts.table.refresh()
        assert lookup.alert(1) == found
        assert lookup.cached_alert(1) is None
    finally:
        lookup.close()


def row_of(settings: Settings, alert_id: int) -> dict:
    [row] = Table(open_objects(settings), PACKETS).lookup([alert_id]).to_pylist()
    return row


@pytest.mark.parametrize("at", [0, 30, -1])
def test_a_damaged_packet_is_a_502(settings: Settings, read: Reader, at: int) -> None:
    store(settings, [ztf(1)])
    row, objects = row_of(settings, 1), open_objects(settings)
    data = bytearray(objects.get(row["pack"]))
    data[row["offset"] + (at if at >= 0 else row["length"] - 1)] ^= 16
    objects.put(row["pack"], bytes(data))
    assert problem(read, 1) == (502, "damaged-packet")
    objects.delete(row["pack"])
    assert problem(read, 1) == (502, "damaged-packet")


def test_damaged_images_are_a_502_too(settings: Settings, read: Reader) -> None:
    store(settings, [ztf(1)])
    objects = open_objects(settings)
    for info in list(objects.list("packs/")):
        objects.delete(info.key)
    assert problem(read, 1) == (502, "damaged-image")


def test_a_packet_past_its_retention_is_gone(settings: Settings) -> None:
    store(settings, [ztf(1)])
    objects = open_objects(settings)
    objects.delete(row_of(settings, 1)["pack"])
    days = int(now_mjd() - row_of(settings, 1)["mjd"]) - 1
    for read in serving(make_app(settings.model_copy(update={"packet_days": days}))):
        assert problem(read, 1) == (410, "gone")


def test_no_packets_are_stored_without_retention(settings: Settings) -> None:
    none = settings.model_copy(update={"packet_days": 0})
    store(none, [ztf(1)])
    assert not list(open_objects(settings).list("packets/"))
    for read in serving(make_app(none)):
        assert problem(read, 1) == (404, "no-packet")


def fields_of(read: Reader, message: bytes) -> dict:
    head = oracle.head(message)
    got = read(f"/v1/alerts/{head['alert_id']}?survey={head['survey']}")
    assert (got.status, "immutable" in got.headers["cache-control"]) == (200, True)
    assert got.json()["packet"] == f"/v1/alerts/{head['alert_id']}/packet"
    return got.json()["fields"]


def compare(found, sent, path: str = "") -> int:
    """Hold JSON to a record that fastavro decoded; returns the number of values."""
    if isinstance(sent, dict):
        assert list(found) == list(sent), path
        return sum(compare(found[name], sent[name], f"{path}.{name}") for name in sent)
    if isinstance(sent, list):
        assert len(found) == len(sent), path
        return sum(compare(*each, path) for each in zip(found, sent, strict=True))
    if isinstance(sent, float) and not math.isfinite(sent):
        assert found is None, path
    elif isinstance(sent, int) and not isinstance(sent, bool):
        assert int(found) == sent, path
        assert sent < 2**31 or isinstance(found, str), path
    else:
        assert found == (sent.isoformat() if hasattr(sent, "isoformat") else sent), path
    return 1


def without_images(record: dict) -> dict:
    return {name: value for name, value in record.items() if not name.startswith("cutout")}


@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="needs the real alerts")
def test_all_fields_of_real_alerts(settings: Settings, read: Reader) -> None:
    messages = made_alerts.real_alerts()[::10]
    store(settings, messages)
    values = 0
    for message in messages:
        values += compare(fields_of(read, message), without_images(oracle.read_record(message)[1]))
    assert values > 50_000


def test_ids_are_text_nan_is_null_and_images_are_left_out(settings: Settings, read: Reader) -> None:
    candidate = made_alerts.ztf_record(9)["candidate"] | {"magpsf": math.nan, "ra": None}
    old = candidate | {"candid": None, "rb": math.inf}
    message = ztf(9, candidate=candidate, prv_candidates=[old])
    store(settings, [message, MADE["deflate"]])
    fields = fields_of(read, message)
    assert fields["candid"] == "9"
    assert (fields["candidate"]["pid"], fields["candidate"]["fid"]) == ("2430301980815", 1)
    assert (fields["candidate"]["magpsf"], fields["candidate"]["ra"]) == (None, None)
    assert (fields["prv_candidates"][0]["candid"], fields["prv_candidates"][0]["rb"]) == (None,) * 2
    assert not {*FIELDS} & {*fields}
    assert fields_of(read, MADE["deflate"])["candid"] == "2"


@pytest.mark.parametrize("message", [MADE["lsst"], MADE["ztf"]], ids=["lsst", "ztf"])
def test_chosen_fields_are_as_among_all(settings: Settings, read: Reader, message: bytes) -> None:
    store(settings, [message])
    path, every = path_of(message).replace("/packet", ""), fields_of(read, message)
    for name in every:
        assert read(f"{path}&fields={name}").json()["fields"] == {name: every[name]}
    first, *_, last = every
    assert read(f"{path}&fields={last},{first}").json()["fields"] == {
        first: every[first],
        last: every[last],
    }


def test_a_field_that_an_alert_does_not_have_is_named(settings: Settings, read: Reader) -> None:
    store(settings, [MADE["ztf"]])
    for wrong in ("candidate,fluxes", "fluxes", "cutoutScience"):
        got = read(f"/v1/alerts/1?fields={wrong}")
        assert (got.status, got.json()["type"]) == (400, "urn:stampede:problem:bad-parameter")
        name = wrong.split(",")[-1]
        assert f"no field '{name}'" in got.json()["detail"]
        assert got.json()["detail"].endswith(", prv_candidates, fp_hists")
    for wrong in ("", ",", "candidate,"):
        got = read(f"/v1/alerts/1?fields={wrong}")
        assert (got.status, "parted by commas" in got.json()["detail"]) == (400, True)


def test_the_history_is_not_decoded_for_other_fields(settings: Settings, read: Reader) -> None:
    """A text in it that is no UTF-8 breaks its decoding alone."""
    previous = made_alerts.ztf_record(9)["candidate"] | {"candid": None}
    message = ztf(9, prv_candidates=[previous | {"isdiffpos": "no utf-8"}])
    broken = message.replace(b"no utf-8", b"no \xff\xff\xff\xff\xff")
    records = StoredRecords(settings)
    assert alert_fields.fields_of(records, broken, ["candid"]) == {"candid": "9"}
    with pytest.raises(Damaged, match="cannot be decoded"):
        alert_fields.fields_of(records, broken)


def test_an_alert_without_its_packet_has_no_fields_and_is_not_cached(
    settings: Settings, read: Reader
) -> None:
    store(settings, [ztf(1)], functions=[cutouts])
    got = read("/v1/alerts/1")
    assert (got.json()["fields"], got.json()["packet"]) == (None, None)
    assert got.headers["cache-control"] == "no-cache"
    store(settings, [ztf(1)], functions=[lightcurves])
    assert fields_of(read, ztf(1))["candid"] == "1"


def test_a_damaged_packet_leaves_the_rest_of_the_alert(settings: Settings, read: Reader) -> None:
    store(settings, [ztf(1)])
    open_objects(settings).delete(row_of(settings, 1)["pack"])
    got = read("/v1/alerts/1")
    assert got.json()["incomplete"] == ["the packet of this alert is damaged"]
    assert (got.json()["fields"], got.json()["cutouts"]["science"] is None) == (None, False)
    assert got.headers["cache-control"] == "no-store"


def test_fields_need_no_images(settings: Settings, read: Reader) -> None:
    """Not their packs, which retention may have deleted."""
    store(settings, [ztf(1), MADE["lsst"]])
    for info in list(open_objects(settings).list("packs/")):
        open_objects(settings).delete(info.key)
    assert fields_of(read, ztf(1))["objectId"] == "ZTF18aaaaaaa"
    assert fields_of(read, MADE["lsst"])["diaSourceId"]


def test_alerts_without_packets_do_not_list_the_store_each_time(settings: Settings) -> None:
    store(settings, [ztf(1)], functions=[cutouts])
    objects = Watched(open_objects(settings))
    for read in serving(make_app(settings.model_copy(update={"refresh_seconds": 600}), objects)):
        assert read("/v1/alerts/1").json()["fields"] is None
        before, begin = len(objects.calls), time.monotonic()
        for _ in range(50):
            assert read("/v1/alerts/1").status == 200
            assert read("/v1/alerts/1/packet").status == 404
        most = 1 + (time.monotonic() - begin) / PACKET_MISS_AGE
        listings = [operation for operation, _ in objects.calls[before:]].count("list")
        assert listings <= most < 50


def test_a_packet_is_found_right_after_it_was_stored(settings: Settings) -> None:
    store(settings, [ztf(1)], functions=[cutouts])
    for read in serving(make_app(settings.model_copy(update={"refresh_seconds": 600}))):
        assert read("/v1/alerts/1/packet").status == 404
        store(settings, [ztf(1)], functions=[lightcurves])
        time.sleep(PACKET_MISS_AGE)
        assert read("/v1/alerts/1/packet").data == ztf(1)


@pytest.mark.long
def test_fields_of_megabytes_are_left_to_the_packet(settings: Settings, read: Reader) -> None:
    """The JSON of many tiny points is 16 times their bytes."""
    record = made_alerts.rubin_record(1101, 8)
    record["prvDiaSources"] = [record["diaSource"]] * 8000
    large = made_alerts.confluent(record, 1101)
    assert len(large) > MOST_BYTES
    store(settings, [large])
    got = read(path_of(large).replace("/packet", ""))
    assert (got.status, got.json()["fields"]) == (200, None)
    assert "take its packet" in got.headers["stampede-incomplete"]
    check(read, large)


def test_a_registry_that_does_not_answer_costs_the_fields_alone(settings: Settings) -> None:
    message = made_alerts.confluent(made_alerts.rubin_record(1101, 9), 1101)
    store(settings, [message])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry = f"http://127.0.0.1:{silent.getsockname()[1]}"
        changed = settings.model_copy(update={"schema_registry": registry})
        for read in serving(make_app(changed)):
            with unittest.mock.patch(
                "stampede.alerts.framing.built_in_schema", side_effect=Undecodable("not built in")
            ):
                began = time.monotonic()
                got = read(path_of(message).replace("/packet", ""))
                assert time.monotonic() - began < 5 * REGISTRY_SECONDS
            assert (got.status, got.json()["fields"]) == (200, None)
            assert "schema registry" in got.headers["stampede-incomplete"]
