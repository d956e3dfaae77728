"""How commands find the running functions: from the file of `stampede up`, or the settings."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from stampede.cli.options import DATA
from stampede.config.settings import Settings
from stampede.errors import SetupError

UP = "up.json"
"""The file in which `stampede up` writes how to reach it."""
OTHERS = DATA / "others"
"""A file for each `stampede up` that keeps its data elsewhere: its pid, and in it the directory."""


class Running(NamedTuple):
    """A running system.

    Attributes
    ----------
    settings
        How to reach it.
    urls
        URLs of its functions by name.
    data
        Directory of its `stampede up`; None if STAMPEDE_FUNCTIONS names the functions.
    logs
        The log of each process of `stampede up` by name.
    """

    settings: Settings
    urls: dict[str, str]
    data: Path | None = None
    logs: Mapping[str, str] = MappingProxyType({})


def running(data: Path | None = None) -> Running | None:
    """The running system that a command is to use; None if there is none.

    The first of: the one with its data in `data`, or else in the usual directory; the one that
    STAMPEDE_FUNCTIONS names; without `data` and STAMPEDE_STORE, the only `stampede up` that keeps
    its data elsewhere.

    Raises
    ------
    SetupError
        Several keep their data elsewhere.
    """
    settings = Settings()
    if found := _recorded(data or DATA, settings):
        return found
    if settings.functions:
        return Running(settings, settings.functions)
    if data or "store" in settings.model_fields_set:
        return None
    return _other_installation(settings)


def settings_of(system: Running | None) -> Settings:
    """The settings of the running system, or those of the environment.

    Raises `SetupError` if nothing runs and the environment names no store.
    """
    if system:
        return system.settings
    settings = Settings()
    if "store" not in settings.model_fields_set:
        raise SetupError(
            "no `stampede up` runs here: start it, name the directory of one with --data, or set "
            "STAMPEDE_STORE to a store"
        )
    return settings


def _recorded(data: Path, settings: Settings) -> Running | None:
    try:
        recorded = json.loads((data / UP).read_text())
        os.kill(recorded["pid"], 0)  # raises if no such process runs
    except (OSError, ValueError, KeyError):
        return None
    secret = type(settings.secret_key)
    update = {
        name: secret(value) if name.endswith(("secret_key", "event_key")) else value
        for name, value in recorded.items()
        if name in Settings.model_fields
    }
    if file := recorded.get("ca_file"):
        update["ca_file"] = Path(file)
    found = settings.model_copy(update=update)
    return Running(found, recorded["urls"], data, recorded.get("logs", {}))


def _other_installation(settings: Settings) -> Running | None:
    found = {}
    for note in sorted(OTHERS.glob("*")):
        data = Path(note.read_text())
        if system := _recorded(data, settings):
            found[data] = system
    if len(found) > 1:
        raise SetupError(
            f"several `stampede up` run here: choose one with --data: {', '.join(map(str, found))}"
        )
    for data, system in found.items():
        print(f"using the `stampede up` of {data}", file=sys.stderr)
        return system
    return None
