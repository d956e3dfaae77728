import pytest

from stampede.errors import Undecodable
from stampede.events.delivery.response import Verdict, judge, reason_of_response, retry_after
from stampede.http.problem_details import problem_json


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.ACCEPTED),
        (204, Verdict.ACCEPTED),
        (301, Verdict.REFUSED),
        (400, Verdict.REFUSED),
        (404, Verdict.DOWN),
        (408, Verdict.FAILED),
        (409, Verdict.FAILED),
        (413, Verdict.REFUSED),
        (422, Verdict.REFUSED),
        (429, Verdict.DOWN),
        (499, Verdict.UNCLEAR),
        (500, Verdict.FAILED),
        (502, Verdict.UNCLEAR),
        (503, Verdict.DOWN),
        (504, Verdict.UNCLEAR),
        (507, Verdict.FAILED),
    ],
)
def test_every_status_has_its_verdict(status: int, verdict: Verdict) -> None:
    assert judge(status) is verdict


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("7", 7),
        ("-7", 0),
        ("soon", 0),
        ("99999", 300),
        ("Thu, 01 Jan 1970 00:00:30 GMT", 20),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ],
)
def test_retry_after(value: str | None, seconds: float) -> None:
    assert retry_after(value, now=10) == seconds


PROBLEM = problem_json(Undecodable('first "line"\nsecond: ä\\b'))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROBLEM.decode(), 'first "line"\nsecond: ä\\b'),
        (PROBLEM[:-1].decode(), 'first "line"\nsecond: ä\\b…'),
        (PROBLEM[: PROBLEM.index(b"second")].decode(), 'first "line"\n…'),
        (PROBLEM[: PROBLEM.index(b"u00e4")].decode(), 'first "line"\nsecond: …'),
        (PROBLEM[: PROBLEM.index(b"u00e4") + 3].decode(), 'first "line"\nsecond: …'),
        ("no document", "no document"),
        ('{"detail": "x\\q', '{"detail": "x\\q'),
        ('{"detail": 3, "x', '{"detail": 3, "x'),
        ('["detail": "x"', '["detail": "x"'),
    ],
)
def test_the_reason_of_an_answer_that_is_cut_off(text: str, reason: str) -> None:
    """Of a response the first 1,024 bytes are kept."""
    assert reason_of_response(text) == reason
