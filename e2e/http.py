"""HTTP as curl does it."""

import json
import urllib.request
from typing import Any


def get(url: str, **headers: str) -> bytes:
    """The body of the response to a GET."""
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        return response.read()


def get_json(url: str) -> Any:
    """The parsed JSON body of the response to a GET."""
    return json.loads(get(url))
