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
        recorded = json.loads((data / UP).read_text())
        os.kill(recorded["pid"], 0)  # raises if no such process runs
    except (OSError, ValueError, KeyError):
        return Running(settings, settings.functions) if settings.functions else None
    secret = type(settings.secret_key)
    update = {
        name: secret(value) if name.endswith(("secret_key", "event_key")) else value
        for name, value in recorded.items()
        if name in Settings.model_fields
    }
    return Running(settings.model_copy(update=update), recorded["urls"])


def settings_of(system: Running | None) -> Settings:
    """The settings of the running system, or those of the environment."""
    return system.settings if system else Settings()
