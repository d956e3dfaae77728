"""Which failures are tried again, and when. Pure: the drivers wait."""

from email.utils import parsedate_to_datetime

from stampede_client.exchange import ServerResponse, problem_of

ATTEMPTS = 6
"""With the waits below a request is given up after about 20 s."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds."""


def is_temporary(response: ServerResponse) -> bool:
    """Whether the same request may succeed later.

    A 502 with a problem document is the server's own word that bytes are damaged; one without
    comes from a proxy that did not reach the server. An ingress answers 499 if it loses the server
    during a request.
    """
    if response.status == 502:
        return not problem_of(response)
    return response.status in (429, 499, 503, 504)


def wait(attempt: int, retry_after: str | None, now: float, jitter: float) -> float | None:
    """Seconds to wait after a failed attempt; None to give up.

    Parameters
    ----------
    attempt
        Number of attempts that have failed, from 1.
    retry_after
        The header of that name: seconds or a date (RFC 9110, 10.2.3).
    now
        Unix time in seconds.
    jitter
        From 0 to 1: clients that failed together come back apart.
    """
    if attempt >= ATTEMPTS:
        return None
    own = FIRST_WAIT * 2.0 ** (attempt - 1) * (0.75 + 0.5 * jitter)
    demanded = _seconds(retry_after, now)
    return None if demanded > LONGEST_WAIT else max(own, demanded)


def _seconds(retry_after: str | None, now: float) -> float:
    if not retry_after:
        return 0.0
    if retry_after.isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    except ValueError:
        return 0.0
