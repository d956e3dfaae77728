"""Designations in every form give the one that the Minor Planet Center writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts.moving.designations import is_designation, path_form, standard_form


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45685", "45685"),
        ("(45685)", "45685"),
        ("00001", "1"),
        ("(99942) Apophis", "99942"),
        ("A0001", "100001"),
        ("z9999", "619999"),
        ("~0000", "620000"),
        ("~000z", "620061"),
        ("~zzzz", "15396335"),
        ("2011 UW158", "2011 UW158"),
        (" 2011  uw158 ", "2011 UW158"),
        ("2011UW158", "2011 UW158"),
        ("2011_UW158", "2011 UW158"),
        ("2027 AA0", "2027 AA"),
        ("2026CL591673", "2026 CL591673"),
        # The examples of the Minor Planet Center's page of packed designations.
        ("J95X00A", "1995 XA"),
        ("J95X01L", "1995 XL1"),
        ("J98SA8Q", "1998 SQ108"),
        ("K99AJ3Z", "2099 AZ193"),
        ("K08Aa0A", "2008 AA360"),
        ("K07Tf8A", "2007 TA418"),
        ("PLS2040", "2040 P-L"),
        ("T3S4101", "4101 T-3"),
        ("2040 P-L", "2040 P-L"),
        ("CJ95A010", "C/1995 A1"),
        ("PJ94P01b", "P/1994 P1-B"),
        ("_QC0000", "2026 CA620"),
        ("_QC0aEM", "2026 CZ6190"),
        ("_QCzzzz", "2026 CL591673"),
        ("C/2017 K2 (PANSTARRS)", "C/2017 K2"),
        ("C/2017K2", "C/2017 K2"),
        ("C_2017_K2", "C/2017 K2"),
        ("P/2019 LD2 (ATLAS)", "P/2019 LD2"),
        ("1P/Halley", "1P"),
        ("73P-BB", "73P-BB"),
        ("2I/Borisov", "2I"),
    ],
)
def test_every_form_has_one_standard_form(text: str, expected: str) -> None:
    assert standard_form(text) == expected
    assert is_designation(text)


@pytest.mark.parametrize("text", ["hello", "ZTF18acsbtfy", "0", "", "2011 IA1", "2011 UI", "1 2"])
def test_what_is_no_designation_stays(text: str) -> None:
    assert standard_form(text) == text
    assert not is_designation(text)


NUMBERED = st.integers(1, 9_999_999).map(str)
HALF = st.sampled_from("ABCDEFGHJKLMNOPQRSTUVWXY")
ORDER = st.sampled_from("ABCDEFGHJKLMNOPQRSTUVWXYZ")
PROVISIONAL = st.builds(
    lambda year, half, order, number: f"{year} {half}{order}{number or ''}",
    st.integers(1800, 2999),
    HALF,
    ORDER,
    st.integers(0, 99_999),
)
COMETS = st.builds(
    lambda kind, year, half, number: f"{kind}/{year} {half}{number}",
    st.sampled_from("CPDXAI"),
    st.integers(1800, 2999),
    HALF,
    st.integers(1, 9999),
)


@given(st.one_of(NUMBERED, PROVISIONAL, COMETS))
def test_a_standard_form_stays_in_every_spelling(name: str) -> None:
    assert standard_form(name) == name
    assert standard_form(path_form(name)) == name
    assert standard_form(name.lower()) == name
    assert "/" not in path_form(name)


@given(st.text(max_size=80))
def test_any_text_has_one_standard_form(text: str) -> None:
    once = standard_form(text)
    assert standard_form(once) == once
