"""Asks a process for its health, as Kubernetes does."""

import urllib.request
from http.client import HTTPException


def is_ready(url: str, probe: str = "readiness") -> bool:
    """Whether the process at this URL answers its readiness, or its liveness, with 200."""
    try:
        with urllib.request.urlopen(f"{url}/health/{probe}", timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, HTTPException):
        return False
