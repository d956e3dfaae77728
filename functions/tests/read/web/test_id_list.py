"""Alert ids of a large query: read at once or one by one, the response is the same."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.errors import StampedeError
from stampede.read.web import id_list

NOTHING = re.compile(rb"(?!)")
WORDS = st.one_of(
    st.integers(1, 2**63 - 1).map(str),
    st.sampled_from(["0", "007", "9223372036854775807", "9223372036854775808", "1" * 30, "id"]),
)
SEPARATORS = st.sampled_from(
    [",", " ", "\n", "\r\n", "\t", ",,", " , ", "\x0b", "\x0c", ";", "\xa0"]
)


def outcome(body: bytes, most: int) -> list[int] | tuple[str, str]:
    try:
        return id_list.alert_ids(bytearray(body), most).tolist()
    except StampedeError as error:
        return error.name, error.message


@given(st.lists(st.tuples(WORDS, SEPARATORS), max_size=8), SEPARATORS, st.integers(1, 9))
def test_ids_are_the_same_at_once_and_one_by_one(
    parts: list[tuple[str, str]], first: str, most: int
) -> None:
    body = (first + "".join(word + between for word, between in parts)).encode("latin-1")
    at_once = outcome(body, most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_list, "_PLAIN", NOTHING)
        assert outcome(body, most) == at_once


def test_plain_ids_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_list, "_ids", None)
    assert id_list.alert_ids(bytearray(b"3\n1, 2\r\n3\n"), 4).tolist() == [1, 2, 3]
