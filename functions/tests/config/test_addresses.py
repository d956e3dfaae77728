"""Addresses without the user and password that they may have."""

import pytest

from stampede.addresses import login_in, shown


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://user:secret@host:8081/path?q=a@b", "http://host:8081/path?q=a@b"),
        ("http://token@host", "http://host"),
        ("http://user:a@b@host", "http://host"),
        ("http://user:p?#w@host/x", "http://host/x"),
        ("user:secret@host:8081", "host:8081"),
        ("http://host/a@b", "http://host/a@b"),
        ("a@b", "a@b"),
        ("http://u:p@h and kafka://v:q@i:9/topic", "http://h and kafka://i:9/topic"),
        ('{"cutouts": "http://u:p@h"}', '{"cutouts": "http://h"}'),
        ("", ""),
    ],
)
def test_shown(given: str, expected: str) -> None:
    assert shown(given) == expected


def test_the_login_in_a_url() -> None:
    assert login_in("https://night:a%40b%3Ac@host/") == ("night", "a@b:c")
    assert login_in("https://night@host/") == ("night", "")
    assert login_in("https://host/a@b") == ("", "")
