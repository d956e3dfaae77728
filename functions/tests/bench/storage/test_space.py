from pathlib import Path

import pytest

from stampede_bench.storage.space import erasure_coded
from tests.support.alerts import made_alerts


@pytest.mark.nightly
def test_packs_take_less_space_than_gzipped_files(measure) -> None:
    found = [figure for figure in measure("space").values() if figure.requirement]
    assert len(found) == 3
    assert all(figure.met for figure in found), [(one.subject, one.ratio) for one in found]
    shared, different, ztf = (figure.ratio for figure in found)
    assert shared < different - 0.2 < ztf


@pytest.mark.skipif(not made_alerts.REAL.is_dir(), reason="no real alerts at ../shared/data")
@pytest.mark.real
@pytest.mark.nightly
def test_packs_of_real_alerts_do_too(measure) -> None:
    found = [figure for figure in measure("space", made_alerts.REAL).values() if figure.requirement]
    assert len([figure for figure in found if "real" in figure.subject]) == 3
    assert all(figure.met for figure in found), [(one.subject, one.ratio) for one in found]


@pytest.mark.nightly
def test_real_alerts_may_lack_those_of_several_detectors(measure, tmp_path: Path) -> None:
    for survey in ("lsst", "ztf"):
        (tmp_path / survey).mkdir()
    for number, survey in enumerate(("lsst", "ztf")):
        record = made_alerts.rubin_record(1101, number)
        message = made_alerts.ztf_alert() if number else made_alerts.confluent(record, 1101)
        (tmp_path / survey / "one.avro").write_bytes(message)
    subjects = {subject for subject, _ in measure("space", tmp_path)}
    assert len([subject for subject in subjects if "real" in subject]) == 2


@pytest.mark.parametrize(
    ("sizes", "unit", "expected"),
    [
        ([1], 4096, 6 * 4096),  # one stripe, however little is in it
        ([16384], 4096, 6 * 4096),
        ([16385], 4096, 12 * 4096),
        ([15_000], 65536, 6 * 65536),
        ([4 << 20, (4 << 20) + 1], 4096, 2 * (6 << 20) + 6 * 4096),
        ([], 4096, 0),
    ],
)
def test_erasure_coding_pads_stripes_and_units(sizes, unit: int, expected: int) -> None:
    assert erasure_coded(sizes, unit) == expected
