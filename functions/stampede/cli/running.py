"""How commands find the functions that run: by `stampede up`'s note, or by the settings."""

import json
import os
from pathlib import Path
from typing import NamedTuple

from stampede.settings import Settings

UP = "up.json"
"""The file in which `stampede up` writes how to reach it."""


class Running(NamedTuple):
    """A running system: settings to reach it by, and the URLs of its functions."""

    settings: Settings
    urls: dict[str, str]


def running(data: Path) -> Running | None:
    """The running system whose data is in `data`, or the one that the settings describe."""
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
