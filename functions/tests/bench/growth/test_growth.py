import pytest

from stampede_bench.growth.first_answer import SUBJECT


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages")
def test_growth_takes_the_requests_of_its_model(measure) -> None:
    found = measure("growth")
    requests = [figure for (_, name), figure in found.items() if name == "requests of a look-up"]
    assert len(requests) == 6
    for figure in requests:
        assert figure.value == pytest.approx(figure.rival.value, rel=0.3)
    first = [figure for (subject, _), figure in found.items() if SUBJECT in subject]
    assert {figure.name for figure in first if figure.requirement} == {"a cutout", "a light curve"}
    assert 0.3 < found["bytes rewritten per byte stored", "after 64 flushes"].value < 2.5
    large = {
        (subject.partition(" ")[0], name): figure
        for (subject, name), figure in found.items()
        if "made-up parts" in subject
    }
    for table in ("cutouts", "detections"):
        assert large[table, "start, until it can be asked, p50"].met
        assert large[table, "requests of a start"].value == 3  # two listings, one checkpoint
        lookup = large[table, "requests of a look-up, those for indexes too"]
        assert 1 <= lookup.value <= 3 * lookup.rival.value
        assert large[table, "read by a look-up"].value > 10
        assert large[table, "memory after those look-ups"].on_target
    nights = {name: figure for (subject, name), figure in found.items() if "a night" in subject}
    assert nights["offsets in the largest footer"].met
    assert nights["offsets in the largest footer"].rival.value > 10_000
    assert nights["read by a start of all 5 tables, more than without"].met
    assert nights["page of the ledger, read anew: CPU"].met
