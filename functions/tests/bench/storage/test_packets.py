import pytest


@pytest.mark.long
def test_each_survey_has_its_cost(measure) -> None:
    found = measure("packets")
    subjects = {subject for subject, _ in found}
    assert len(subjects) == 2
    for subject in subjects:
        figures = {name: figure for (of, name), figure in found.items() if of == subject}
        assert figures["added to `lightcurves`"].value == figures["added to all"].value > 0
        assert figures["added to all"].must is not None
        assert 0 < figures["their index"].value < figures["packets"].value < 100
