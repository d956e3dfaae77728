import math

import pytest

from stampede.alerts.surveys.rubin_schemas import RUBIN_VERSIONS
from stampede.errors import Undecodable
from stampede_local.demo.oracle import read_record
from stampede_simulator.faults import FAULTS, with_fault
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.alerts.avro_reading import decode

REJECTED = [fault for fault, status in FAULTS.items() if status.cutouts == 400]


def spoilt(survey, fault, codec="null"):
    share = float(survey == "lsst")
    simulator = Simulator(
        6, Fields(objects=6), Mix(lsst_share=share, corrupt=1, faults=(fault,)), codec=codec
    )
    return simulator.alerts(25)


def read(survey, body):
    """The alert by fastavro, by whatever schema the message names; all bytes must be used."""
    found, record = read_record(body)
    if found != survey:
        raise ValueError(f"an alert of {found}")
    return record


@pytest.mark.parametrize("survey", ["lsst", "ztf"])
def test_the_oracle_reads_alerts_without_a_fault(survey):
    alert = next(Simulator(6, mix=Mix(lsst_share=float(survey == "lsst"))).alerts(1))
    assert read(survey, alert.body)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
@pytest.mark.parametrize("survey", ["lsst", "ztf"])
@pytest.mark.parametrize("fault", REJECTED)
def test_an_alert_with_status_400_cannot_be_decoded(survey, fault, codec):
    for alert in spoilt(survey, fault, codec):
        assert alert.fault == fault
        with pytest.raises(Exception) as caught:  # noqa: PT011  fastavro raises what it meets
            read(survey, alert.body)
        assert not isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("fault", ["no-time", "future", "not-fits"])
@pytest.mark.parametrize("survey", ["lsst", "ztf"])
def test_alerts_with_other_faults_can_be_decoded(survey, fault):
    for alert in spoilt(survey, fault):
        packet = decode(survey, alert.body)
        lsst = survey == "lsst"
        time = packet["diaSource"]["midpointMjdTai"] if lsst else packet["candidate"]["jd"] - 2.4e6
        science = packet["cutoutScience"] if lsst else packet["cutoutScience"]["stampData"]
        match fault:
            case "no-time":
                assert math.isnan(time)
            case "future":
                assert time > 79_999
            case "not-fits":
                assert not science.startswith((b"SIMPLE", b"\x1f\x8b"))
                assert time == pytest.approx(alert.mjd, abs=0.6)


def test_every_fault_is_used_in_turn():
    faults = [alert.fault for alert in Simulator(1, mix=Mix(corrupt=1)).alerts(2 * len(FAULTS))]
    assert faults == [*FAULTS, *FAULTS]


def test_the_unknown_schema_is_unknown():
    assert 9999 not in RUBIN_VERSIONS
    alert = next(iter(spoilt("lsst", "unknown-schema")))
    with pytest.raises(Undecodable, match="9999"):
        read("lsst", alert.body)


def test_an_unknown_fault_is_refused():
    alert = next(Simulator(1).alerts(1))
    with pytest.raises(ValueError, match="dented"):
        with_fault(alert, "dented")
