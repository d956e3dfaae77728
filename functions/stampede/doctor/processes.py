"""The functions and sources of a running system."""

import time
from collections.abc import Iterator

from stampede.doctor.finding import Finding, Installation, NotExamined, error
from stampede.doctor.sleeping import asleep
from stampede.handlers.audit.status import states_of

START_SECONDS = 20.0
"""Time that a function which had scaled to zero has to start."""
UP_SECONDS = 2.0
"""The same of `stampede up`, where none scales to zero."""


def processes(installation: Installation) -> Iterator[Finding]:
    """Each function and source is ready."""
    if not installation.urls:
        raise NotExamined("no `stampede up` runs here, and STAMPEDE_FUNCTIONS is not set")
    sleeping = asleep(installation.urls)
    urls = {name: url for name, url in installation.urls.items() if name not in sleeping}
    states = states_of(urls)
    deadline = time.monotonic() + (UP_SECONDS if installation.logs else START_SECONDS)
    while set(states.values()) - {"running"} and time.monotonic() < deadline:
        time.sleep(0.5)
        states = states_of(urls)
    for name, state in sorted(states.items()):
        if state != "running":
            log = installation.logs.get(name)
            yield error(
                f"{name} is {state}",
                f"look at its log{f', {log}' if log else ''}; it answers at {urls[name]}",
            )
    if sleeping:
        raise NotExamined(f"{', '.join(sorted(sleeping))}: without a pod, which a request starts")
