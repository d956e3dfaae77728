import pytest


@pytest.mark.nightly
@pytest.mark.usefixtures("ceph_packages")
def test_read_compares_latencies_with_those_of_the_store(measure) -> None:
    found = measure("read")
    for threads in (1, 8):
        subject = f"a cutout by id, warm, {threads} at a time"
        assert found[subject, "p99"].value >= found[subject, "p50"].value > 0
        assert found[subject, "p50"].rival.value > 0
        assert found[subject, "CPU of read"].value > 0
    start = "from the start of a process to its first answer"
    for name in ("a cutout", "a light curve"):
        assert found[start, name].value > 0
        assert found[start, name].requirement.ratio
        assert found[start, name].rival.value > 0
        assert found[start, name].target.value == 500.0
        assert found[start, f"{name}: CPU"].value > 0
    crowd = [figure for (subject, _), figure in found.items() if "kept-alive" in subject]
    assert {figure.name: figure.value for figure in crowd}["failures"] == 0
    assert [figure for figure in found.values() if figure.name == "a cutout by id meanwhile, p99"]
