import pytest


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages", "kafka_packages")
def test_scrub_counts_what_a_round_takes(measure) -> None:
    found = measure("scrub")
    subjects = {subject for subject, _ in found}
    assert len(subjects) == 3  # LSST with two lengths of histories, ZTF
    for subject in subjects:
        of = {name: figure.value for (one, name), figure in found.items() if one == subject}
        assert of["read in all"] > 40 * 20e3 / 1e9  # 40 alerts of more than 20 KB each
        assert of["CPU of scrub for a GB"] > 0
        assert of["CPU of Ceph for a GB"] > 0
        # A pack and a run at least, of less than 20 MB.
        assert of["GET for a GB"] * of["read in all"] >= 2
        assert 0 < of["read"] < 10_000
        assert of["memory of scrub"] > 50
