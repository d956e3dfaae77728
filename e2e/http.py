"""HTTP as curl does it."""

import json
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
