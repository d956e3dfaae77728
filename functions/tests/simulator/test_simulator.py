import io
import math
from collections import defaultdict

import fastavro
import pytest

from stampede.alerts.columns import FLAGS
from stampede_local.demo.oracle import unframe
from stampede_simulator.lsst import FORCED_DAYS
from stampede_simulator.simulator import Fields, Mix, Simulator
from stampede_simulator.sky import FIRST_NIGHT, Point
from tests.support.alerts.avro_reading import decode

NOVEMBER_2026 = 61345.0
TAI_UTC = 37 / 86400


@pytest.fixture(scope="module")
def simulator():
    return Simulator(7, Fields(objects=12, nights=80), Mix(null_cutouts=0.05))


@pytest.fixture(scope="module")
def sent(simulator):
    return list(simulator.alerts(900))


@pytest.fixture(scope="module")
def packets(sent):
    return [(alert, decode(alert.survey, alert.body)) for alert in sent]


def of(survey, packets):
    return [(alert, packet) for alert, packet in packets if alert.survey == survey]


def test_every_alert_is_valid_and_has_the_expected_values(packets):
    for alert, packet in of("lsst", packets):
        assert packet["diaSourceId"] == packet["diaSource"]["diaSourceId"] == alert.alert_id
        assert packet["diaSource"]["midpointMjdTai"] == alert.mjd
        for kind, image in alert.fits.items():
            assert packet[f"cutout{kind.title()}"] == image
    for alert, packet in of("ztf", packets):
        assert packet["candid"] == packet["candidate"]["candid"] == alert.alert_id
        assert packet["objectId"] == alert.object_id
        assert packet["candidate"]["jd"] - 2400000.5 + TAI_UTC == pytest.approx(alert.mjd, abs=1e-8)


@pytest.mark.long
def test_the_bytes_are_those_that_fastavro_writes(packets):
    for alert, packet in packets:
        schema, record = unframe(alert.body)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, packet)
        assert out.getvalue() == record


@pytest.mark.parametrize("lsst_share", [1.0, 0.0])
def test_before_the_first_night_of_alerts_objects_are_observed_all_the_same(lsst_share):
    def alerts(first_night):
        return Simulator(
            3, Fields(objects=4, nights=40, first_night=first_night), Mix(lsst_share=lsst_share)
        ).alerts(120)

    late = list(alerts(25))
    whole = [alert for alert in alerts(0) if alert.mjd >= FIRST_NIGHT + 25]
    assert all(alert.mjd >= FIRST_NIGHT + 25 for alert in late)
    assert len(whole) > 5
    for one, other in zip(late, whole, strict=False):
        assert (one.alert_id, one.points) == (other.alert_id, other.points)
        assert len(one.points) > 10
        assert repr(without_images(one)) == repr(without_images(other))  # some are NaN


def without_images(alert):
    """All of a packet but its images, whose noise is drawn anew."""
    packet = decode(alert.survey, alert.body)
    return {key: value for key, value in packet.items() if not key.startswith("cutout")}


def test_same_seed_same_bytes():
    def bodies(seed):
        simulator = Simulator(seed, Fields(objects=5), Mix(duplicates=0.1, corrupt=0.1))
        return [alert.body for alert in simulator.alerts(150)]

    assert bodies(3) == bodies(3)
    assert not set(bodies(3)) & set(bodies(4)) - {b""}


def test_a_call_continues_after_the_last_one():
    at_once, halves = Simulator(5, Fields(objects=5)), Simulator(5, Fields(objects=5))
    expected = [alert.body for alert in at_once.alerts(60)]
    assert [a.body for n in (25, 35) for a in halves.alerts(n)] == expected


def test_ids_are_unique_and_take_nine_bytes(sent):
    ids = [alert.alert_id for alert in sent]
    assert len(set(ids)) == len(ids)
    assert all(2**56 <= 2 * alert_id < 2**63 for alert_id in ids)


def test_no_alert_is_from_the_future():
    simulator = Simulator(1, Fields(objects=1, nights=340), keep_light_curves=False)
    last = max(a.mjd for a in simulator.alerts(600))
    assert 61300 < last < NOVEMBER_2026


def test_lsst_history_is_the_earlier_detections(packets):
    earlier, forced, grown, again = defaultdict(list), defaultdict(dict), 0, 0
    for _, packet in of("lsst", packets):
        if packet["diaObject"] is None:
            assert packet["prvDiaSources"] is None
            continue
        name = packet["diaObject"]["diaObjectId"]
        assert repr(packet["prvDiaSources"] or []) == repr(earlier[name])  # NaN equals NaN here
        earlier[name].append(packet["diaSource"])
        assert packet["diaObject"]["nDiaSources"] == len(earlier[name])
        rows = packet["prvDiaForcedSources"] or []
        now = {(row["visit"], row["detector"]): row for row in rows}
        assert len(now) == len(rows)
        for place, row in forced[name].items():
            if place not in now:
                assert packet["diaSource"]["midpointMjdTai"] - row["midpointMjdTai"] > FORCED_DAYS
            elif repr(row) != repr(now[place]):  # its visit was processed again
                assert row["diaForcedSourceId"] != now[place]["diaForcedSourceId"]
                assert row["timeProcessedMjdTai"] < now[place]["timeProcessedMjdTai"]
                again += 1
        forced[name] = now
        grown = max(grown, len(now))
    assert max(map(len, earlier.values())) > 8
    assert grown > 15
    assert again > 15


def test_ztf_history_is_the_thirty_days_before(packets):
    seen, limits, forced = defaultdict(dict), 0, 0
    for _, packet in of("ztf", packets):
        name, jd = packet["objectId"], packet["candidate"]["jd"]
        rows = packet["prv_candidates"] or []
        assert all(jd - 30 <= row["jd"] < jd for row in rows + (packet["fp_hists"] or []))
        history = {row["candid"]: row for row in rows if row["candid"] is not None}
        expected = {candid: row for candid, row in seen[name].items() if row["jd"] >= jd - 30}
        assert history.keys() == expected.keys()
        for candid, row in history.items():
            for key in ("jd", "pid", "fid", "ra", "dec", "magpsf", "sigmapsf", "isdiffpos", "rb"):
                assert row[key] == expected[candid][key]
        assert all(row["magpsf"] is None for row in rows if row["candid"] is None)
        limits += sum(row["candid"] is None for row in rows)
        forced += len(packet["fp_hists"] or [])
        seen[name][packet["candid"]] = packet["candidate"]
    assert limits > 100
    assert forced > 1000


def test_lsst_points_are_those_of_the_packet(packets):
    def point(row, forced, alert):
        return Point(
            alert.object_id,
            "lsst",
            forced,
            False,
            row["visit"] * 1000 + row["detector"] if forced else row["diaSourceId"],
            row["midpointMjdTai"],
            row["band"],
            *(row["ra"], row["dec"]),
            *(row["psfFlux"], row["psfFluxErr"], row["scienceFlux"], row["scienceFluxErr"]),
            None if forced else row["reliability"],
            *(row["visit"], row["detector"]),
            None if forced else sum(1 << bit for bit, name in enumerate(FLAGS) if row[name]),
        )

    flagged = set()
    for alert, packet in of("lsst", packets):
        read = {point(packet["diaSource"], False, alert)}
        read |= {point(row, False, alert) for row in packet["prvDiaSources"] or []}
        read |= {point(row, True, alert) for row in packet["prvDiaForcedSources"] or []}
        assert set(alert.points) == read
        flagged |= {point.flags for point in read if point.flags}
        assert len(alert.points) == len(read)
    assert len(flagged) > 3


def test_ztf_points_are_those_of_the_packet(packets):
    def nanojansky(mag):
        return 10 ** ((31.4 - mag) / 2.5)

    def close(a, b):
        return (a is None and b is None) or math.isclose(a, b, rel_tol=1e-5)

    for alert, packet in of("ztf", packets):
        candidate, history = packet["candidate"], packet["prv_candidates"] or []
        read = []
        for row in [candidate, *history]:
            if row["candid"] is None:
                error = nanojansky(row["diffmaglim"]) / 5
                quality = None, row["diffmaglim"], None
                read.append((row["jd"], False, True, row["pid"], None, error, quality))
                continue
            flux = nanojansky(row["magpsf"])
            error = flux * row["sigmapsf"] * math.log(10) / 2.5
            signed = flux if row["isdiffpos"] == "t" else -flux
            quality = None, row["diffmaglim"], row["rb"]
            read.append((row["jd"], False, False, row["candid"], signed, error, quality))
        for row in packet["fp_hists"] or []:
            scale = nanojansky(row["magzpsci"])
            good = row["forcediffimflux"] > -99998
            flux = row["forcediffimflux"] * scale if good else None
            error = row["forcediffimfluxunc"] * scale if good else None
            quality = row["procstatus"], row["diffmaglim"], None
            read.append((row["jd"], True, False, row["pid"], flux, error, quality))
        assert len(read) == len(alert.points)
        for (jd, forced, limit, source_id, flux, error, quality), true in zip(
            read, alert.points, strict=True
        ):
            assert jd - 2400000.5 + TAI_UTC == pytest.approx(true.mjd, abs=1e-8)
            assert (forced, limit, source_id) == (true.forced, true.limit, true.source_id)
            assert close(flux, true.flux)
            assert close(error, true.flux_err)
            assert quality == (true.procstatus, true.limiting_mag, true.rb)


def test_a_light_curve_has_the_points_of_all_alerts(simulator, sent):
    curves = defaultdict(dict)
    for alert in sent:
        for point in (*alert.points[1:], alert.points[0]):  # its own point is the fuller one
            before = curves[alert.object_id].get(point.key, point)
            curves[alert.object_id][point.key] = point if before.reliability is None else before
    assert set(simulator.object_ids) == curves.keys()
    for object_id, points in curves.items():
        curve = simulator.light_curve(object_id)
        assert len(curve) == len(points)
        assert set(curve) == set(points.values())
        assert [p.mjd for p in curve] == sorted(p.mjd for p in curve)
    assert simulator.light_curve("nobody") == []


def test_a_light_curve_leaves_out_alerts_that_cannot_be_stored():
    simulator = Simulator(2, Fields(objects=4), Mix(corrupt=1.0, faults=("truncated",)))
    assert all(alert.fault == "truncated" for alert in simulator.alerts(20))
    assert simulator.object_ids == []


@pytest.mark.long
def test_shares_hold():
    count = 3000
    simulator = Simulator(
        9,
        Fields(objects=20),
        Mix(lsst_share=0.3, solar_system=0.2, null_cutouts=0.1, duplicates=0.08, corrupt=0.05),
    )
    alerts = list(simulator.alerts(count))

    def holds(number, of, share):
        return abs(number - of * share) < 4 * math.sqrt(of * share * (1 - share))

    originals = [alert for alert in alerts if not alert.duplicate]
    lsst = [alert for alert in originals if alert.survey == "lsst"]
    assert holds(count - len(originals), count, 0.08)
    assert holds(len(lsst), len(originals), 0.3)
    assert holds(sum(alert.kind == "mover" for alert in lsst), len(lsst), 0.2)
    assert holds(sum(None in alert.fits.values() for alert in originals), len(originals), 0.1)
    assert holds(sum(alert.fault is not None for alert in originals), len(originals), 0.05)
    before = {}
    for alert in alerts:
        if alert.duplicate:
            assert before[alert.alert_id] == alert.body
        before[alert.alert_id] = alert.body


def test_a_mover_belongs_to_the_solar_system_only():
    object_ids, alerts = (
        set(),
        list(Simulator(3, Fields(objects=4), Mix(lsst_share=1, solar_system=1)).alerts(60)),
    )
    for alert in alerts:
        packet = decode("lsst", alert.body)
        assert not packet["diaSource"]["diaObjectId"]
        assert str(packet["diaSource"]["ssObjectId"]) == alert.object_id
        assert packet["ssSource"]["ssObjectId"] == packet["diaSource"]["ssObjectId"]
        assert packet["ssSource"]["diaSourceId"] == alert.alert_id
        assert packet["mpc_orbits"] is not None
        assert packet["diaObject"] is packet["prvDiaForcedSources"] is None
        object_ids.add(packet["diaSource"]["diaObjectId"])
    assert object_ids == {None, 0}  # both ways in which real packets say "none"
    assert len({alert.object_id for alert in alerts}) == 4


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_containers_of_every_codec_hold_the_same_alert(codec):
    plain = Simulator(4, Fields(objects=4), Mix(lsst_share=0))
    packed = Simulator(4, Fields(objects=4), Mix(lsst_share=0), codec=codec)
    for a, b in zip(plain.alerts(20), packed.alerts(20), strict=True):
        assert fastavro.reader(io.BytesIO(b.body)).codec == codec
        assert decode("ztf", a.body) == decode("ztf", b.body)


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (Fields, {"nights": 0}),
        (Fields, {"nights": 341}),
        (Fields, {"objects": 0}),
        (Simulator, {"codec": "zip"}),
        (Mix, {"corrupt": 1.5}),
        (Mix, {"lsst_share": -0.1}),
    ],
)
def test_invalid_arguments_are_refused(make, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        make(**wrong)
