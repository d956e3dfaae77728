import pytest

ALONE = "a single alert while nothing else happens"


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_visit_reads_every_sampled_alert_and_stores_all(measure) -> None:
    found = measure("visit")
    subjects = {subject for subject, _ in found}
    [visits] = [each for each in subjects if each.startswith("2 visits of 40 LSST alerts")]
    [large] = [each for each in subjects if each.startswith("one visit of 160 LSST alerts")]
    for subject in (visits, large):
        of = {name: figure for (one, name), figure in found.items() if one == subject}
        for name in ("durable", "readable"):
            assert 0 < of[f"{name}, p50"].value <= of[f"{name}, p98"].value
            assert of[f"{name}, p98"].value <= of[f"{name}, max"].value
        assert of["readable, p98"].value > of["durable, p98, of the sample"].value
        assert of["durable, p98, of the sample"].value <= of["durable, max"].value
        assert of["CPU of the sender"].value > 0
        assert of["CPU of alerts workers"].value > 0
        total = 80 if subject == visits else 160
        assert of["CPU of thumbnails"].value * total >= 10  # ms, of which the kernel counts tens
        assert of["wall time of alerts: whole"].value > of["wall time of alerts: put"].value > 0
    for table in ("cutouts", "detections", "packets"):
        stored = found[ALONE, f"stored in {table}, p50"]
        assert 0 < stored.spread[0] <= found[ALONE, "durable, max"].value
    assert found[ALONE, "readable, max"].value > found[ALONE, "durable, p50"].value
    stored = found["all alerts", "in the ledger of every table"]
    assert stored.value == stored.rival.value == 3 + 2 * 40 + 160
    assert found["all alerts", "dead letters"].value == 0
