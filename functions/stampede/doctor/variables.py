"""Environment variables that are no settings: a typing error changes nothing, silently."""

import os
from collections.abc import Iterator
from difflib import get_close_matches

from stampede.config.settings import Settings
from stampede.doctor.finding import Finding, Installation, warning

PREFIX = "STAMPEDE_"
OTHERS = {"STAMPEDE_DATA", "STAMPEDE_TOKEN", "STAMPEDE_CLUSTER", "STAMPEDE_VALUES"}
"""Variables of commands, and of the tests on a cluster."""


def variables(installation: Installation) -> Iterator[Finding]:
    """Each variable STAMPEDE_… is a setting."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields} | OTHERS
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known and "_E2E_" not in name:
            near = get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            yield warning(
                f"{name} is set, and is no setting: it has no effect",
                f"{meant}`stampede settings` lists them",
            )
