"""HTTP as curl does it."""

import json
import urllib.error
import urllib.request
from typing import Any


def get(url: str, **headers: str) -> bytes:
    """The body of the response to a GET."""
    return get_within(120, url, **headers)


def get_within(seconds: float, url: str, **headers: str) -> bytes:
    """The same. Raises `TimeoutError`, or another `OSError`, if nothing comes for so long."""
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=seconds) as response:
        return response.read()


def get_json(url: str) -> Any:
    """The parsed JSON body of the response to a GET."""
    return json.loads(get(url))


def found(url: str) -> bool:
    """Whether the response to a GET is not 404. Raises on other errors."""
    try:
        return bool(get(url))
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return False
