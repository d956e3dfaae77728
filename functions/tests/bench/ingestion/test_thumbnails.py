import pytest


def test_each_stage_has_a_figure(measure) -> None:
    found = measure("thumbnails")
    subjects = {subject for subject, _ in found}
    assert len(subjects) == 2
    for subject in subjects:
        figures = {name: figure for (of, name), figure in found.items() if of == subject}
        assert 1 < figures.pop("stored").value < 20
        total = figures.pop("all")
        assert total.requirement is not None
        assert sum(figure.value for figure in figures.values()) == pytest.approx(total.value)
        assert figures["draw"].value > 0
