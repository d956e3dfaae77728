"""Stampede reads from simulated alerts exactly what the simulator expects."""

from collections import defaultdict

import pytest

from stampede.alerts.columns import KINDS
from stampede.alerts.isolation import Isolation
from stampede.images.fits import unpack
from stampede_simulator.faults import FAULTS
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.alerts.batch_decoders import make_batch_decoder

TOLERANCE = dict.fromkeys(("flux", "flux_err", "total_flux", "total_flux_err"), 1e-5) | {
    "mjd": 1e-13
}


@pytest.fixture
def reader(tmp_path):
    return make_batch_decoder(tmp_path, 61400.0)


def status(fault):
    return 200 if fault is None else fault.status


def test_light_curves_and_cutouts(reader):
    simulator = Simulator(
        11, Fields(objects=8), Mix(null_cutouts=0.1, solar_system=0.1, duplicates=0.05)
    )
    alerts = list(simulator.alerts(300))
    messages = [alert.body for alert in alerts]

    found = reader.detections(messages)
    assert found.faults == [None] * len(alerts)
    curves = defaultdict(dict)
    for row in found.rows.to_pylist():
        key = tuple(row[name] for name in ("object_id", "survey", "forced", "limit", "source_id"))
        before = curves[row["object_id"]].get(key)
        if before is None or before["reliability"] is None:
            curves[row["object_id"]][key] = row
    assert curves.keys() == set(simulator.object_ids)
    for object_id, curve in curves.items():
        expected = simulator.light_curve(object_id)
        assert curve.keys() == {point.key for point in expected}
        for point in expected:
            row = curve[point.key]
            assert not row["withdrawn"]
            for name, value in point._asdict().items():
                # ZTF's magnitudes are 32 bits wide, and its times are in another scale.
                if value is not None and name in TOLERANCE:
                    # The source of the reference image and the difference may cancel.
                    size = abs(value) + (abs(point.flux or 0) if name == "total_flux" else 0)
                    assert row[name] == pytest.approx(value, rel=0, abs=TOLERANCE[name] * size)
                else:
                    assert row[name] == value

    rows = reader.cutouts(messages).rows.to_pylist()
    stored = [(row["alert_id"], row["kind"], row["fits"] and unpack(row["fits"])) for row in rows]
    # Ordered by the first alert of each schema; within a schema as in a pack.
    ordered = sorted(alerts, key=lambda alert: (alert.survey != alerts[0].survey, alert.alert_id))
    assert stored == [
        (alert.alert_id, kind, alert.fits[kind]) for alert in ordered for kind in sorted(KINDS)
    ]


@pytest.mark.parametrize("survey", ["lsst", "ztf"])
def test_every_fault_gets_its_status(reader, survey):
    simulator = Simulator(
        12, Fields(objects=5), Mix(lsst_share=float(survey == "lsst"), corrupt=0.5)
    )
    alerts = list(simulator.alerts(100))
    assert {alert.fault for alert in alerts} == {None, *FAULTS}
    messages = [alert.body for alert in alerts]
    for number, read in enumerate((reader.cutouts, reader.detections)):
        responses = [status(fault) for fault in read(messages, Isolation.CHECKED).faults]
        expected = [FAULTS[a.fault][number] if a.fault else 200 for a in alerts]
        assert responses == expected, [
            (a.fault, got)
            for a, got, due in zip(alerts, responses, expected, strict=True)
            if got != due
        ]
