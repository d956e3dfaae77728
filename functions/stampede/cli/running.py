"""How commands find the running functions: from the file of `stampede up`, or the settings."""

import json
import os
from pathlib import Path
from typing import NamedTuple

from stampede.settings import Settings

UP = "up.json"
"""The file in which `stampede up` writes how to reach it."""


class Running(NamedTuple):
    """A running system: the settings to reach it, and the URLs of its functions by name."""

    settings: Settings
    urls: dict[str, str]


def running(data: Path) -> Running | None:
    """The system that runs with its data in `data`, or the one that STAMPEDE_FUNCTIONS names.

    None if there is neither.
    """
    settings = Settings()
    try:
        found = json.loads((data / UP).read_text())
        os.kill(found["pid"], 0)
    except (OSError, ValueError, KeyError):
        return Running(settings, settings.functions) if settings.functions else None
    secret = type(settings.secret_key)
    update = {
        name: secret(value) if name.endswith("secret_key") else value
        for name, value in found.items()
        if name in Settings.model_fields
    }
    return Running(settings.model_copy(update=update), found["urls"])


def settings_of(found: Running | None) -> Settings:
    """The settings of the running system, or those of the environment."""
    return found.settings if found else Settings()
