import pytest

from stampede_bench.ingestion.cost import PARTS


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_cost_counts_every_part_of_the_way(measure) -> None:
    found = measure("cost")
    subjects = {subject for subject, _ in found}
    assert len(subjects) == 3  # LSST with two lengths of histories, ZTF
    for subject in subjects:
        of = {name: figure for (one, name), figure in found.items() if one == subject}
        spent = {
            name: figure.value
            for name, figure in of.items()
            if figure.unit == "CPU s" and name != "CPU of all"
        }
        assert len(spent) == 2 * len(PARTS)
        assert of["CPU of all"].value == pytest.approx(sum(spent.values()))
        for part in ("sources", "cutouts workers", "lightcurves workers", "Ceph", "Kafka"):
            assert spent[f"CPU of {part} until drawn"] > 0, part
        # A batch is a pack and a run in `cutouts`, three objects and two runs in `lightcurves`, at
        # least, and a pack and a run of thumbnails: of 40 alerts in 1 to 40 batches.
        assert 8 * 1e6 / 40 <= of["PUT until drawn"].value <= 10 * 1e6
        assert of["DELETE until drawn"].value == 0
        assert of["stored"].value < of["written until drawn"].value * 1.01
        assert of["stored"].rival.value > 0.05  # GB as sent, of alerts of 50 KB and more
        assert of["memory of cutouts workers"].value > 50
        merged = of["merged for the first time"]
        assert 0 <= merged.value <= merged.rival.value
