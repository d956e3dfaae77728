from pathlib import Path

import pytest

from stampede.alerts.batch_decoder import BatchDecoder
from stampede_bench.instruments import load
from tests.support.alerts.batch_decoders import make_batch_decoder

REAL = Path(__file__).parents[5] / "shared" / "data"


def reader(directory: Path) -> BatchDecoder:
    return make_batch_decoder(directory)


@pytest.mark.nightly
def test_each_stage_has_a_figure(measure) -> None:
    found = measure("decode")
    subjects = {subject for subject, _ in found}
    assert len(subjects) == 8  # four loads, two functions
    for subject in subjects:
        stages = {name: figure.value for (of, name), figure in found.items() if of == subject}
        total = stages.pop("all")
        read = stages.pop("framing, image tokens and decode")
        assert read == stages["framing"] + stages["image tokens"] + stages["decode"]
        assert sum(stages.values()) == pytest.approx(total)
        assert stages["image tokens"] > 0
        assert stages["decode"] > 0
        assert found[subject, "all"].rival.value > 0
    bounds = [found[one, "all"].requirement for one in subjects if "LSST" in one]
    assert sum(bound is not None for bound in bounds) == 4  # none for the longest histories


@pytest.mark.nightly
@pytest.mark.parametrize(("survey", "rows"), [("lsst", 100), ("ztf", 60)])
def test_simulated_alerts_are_as_large_as_real_ones_and_of_different_objects(
    survey: str, rows: int, tmp_path: Path
) -> None:
    alerts = load.simulated(survey, 40, rows)
    assert len({object_id for _, object_id in alerts.ids}) > 20
    points = reader(tmp_path).detections(alerts.messages).rows.num_rows
    assert points / 40 == pytest.approx(rows, rel=0.3)
    assert {"lsst": 130_000, "ztf": 60_000}[survey] < alerts.size < 200_000


def test_short_cutouts_are_still_fits(tmp_path: Path) -> None:
    alerts = load.short_cutouts(5, 100)
    assert alerts.size < 100_000
    decoded = reader(tmp_path).cutouts(alerts.messages)
    assert decoded.faults == [None] * 5
    assert decoded.rows["fits"].null_count == 0


@pytest.mark.nightly
@pytest.mark.integration
@pytest.mark.real
@pytest.mark.skipif(not REAL.exists(), reason="no real alerts at ../shared/data")
@pytest.mark.parametrize("place", [0, 1])
def test_real_alerts_repeated_are_different_alerts_of_different_objects(
    place: int, tmp_path: Path
) -> None:
    alerts = list(load.real(REAL, 210))[place]
    decoded = reader(tmp_path).cutouts(alerts.messages)
    assert decoded.faults == [None] * 210
    for name in ("alert_id", "object_id"):
        assert len(decoded.rows[name].unique()) == 210
