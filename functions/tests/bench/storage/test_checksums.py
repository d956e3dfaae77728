import pytest


@pytest.mark.long
def test_checksums_are_compared_with_none(measure) -> None:
    found = measure("checksums")
    subjects = {subject for subject, _ in found}
    assert len(subjects) == 3
    for (subject, name), figure in found.items():
        assert figure.rival is not None, (subject, name)
        assert (figure.must is not None) == ("added" in name or name == "an image of 15 KB")
    image = found["checksums: reading", "an image of 15 KB"]
    assert image.value == pytest.approx(0.4, abs=20)
    assert image.met
