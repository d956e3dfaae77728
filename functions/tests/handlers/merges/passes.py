"""One pass of all merges, which looks at every window of nights, and one of `scrub` after it."""

from datetime import timedelta
from unittest.mock import patch

from stampede.config.settings import Settings
from stampede.handlers.merges import merges, packets
from stampede.handlers.merges.merges import Merges
from stampede.handlers.scrub.scrubber import Fault, Scrub, Site
from stampede.store.open import open_objects


def run_merges(settings: Settings) -> None:
    """Make a pass as a process that has just started. Raises what `compact` would."""
    with patch.object(packets, "WINDOWS", 1.0), patch.object(merges, "IDLE", timedelta(0)):
        if error := Merges(settings, open_objects(settings)).run():
            raise error


def faults(settings: Settings) -> list[Fault]:
    """What `scrub` finds wrong."""
    found: list[Fault] = []
    Scrub(Site.of(settings, "store", open_objects(settings)), found.append).run()
    return found
