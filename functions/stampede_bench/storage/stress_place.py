"""The place of a pod among those of one `stampede bench stress`, which a Job gives it."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from stampede.errors import SetupError
from stampede_bench.storage.client_requests import share

COUNT, RUN, INDEX = "STAMPEDE_STRESS_PODS", "STAMPEDE_STRESS_RUN", "JOB_COMPLETION_INDEX"


class Place(NamedTuple):
    """Which pod this is, of how many, and the name of their run."""

    pod: int
    pods: int
    run: str

    def share(self, total: int) -> int:
        """This pod's share of a number of clients."""
        return share(total, self.pod, self.pods)

    def keys(self, keys: list[str]) -> list[str]:
        """This pod's share of the keys."""
        return keys[self.pod :: self.pods]


def place_in(environment: Mapping[str, str]) -> Place | None:
    """The place that a Job gives a pod; None if it is the only one.

    Raises `SetupError` if what the environment says is no place.
    """
    pods = _number(environment, COUNT, 1)
    if pods == 1:
        return None
    index, run = _number(environment, INDEX, 0), environment.get(RUN, "")
    if index >= pods:
        raise SetupError(f"{INDEX} is {index}, but {COUNT} is {pods}: they begin at 0")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", run):
        raise SetupError(
            f"{RUN} is {run!r}: set it to the same new name of small letters, digits and hyphens "
            f"for all {pods} pods"
        )
    return Place(index, pods, run)


def _number(environment: Mapping[str, str], name: str, least: int) -> int:
    text = environment.get(name, "1" if name == COUNT else "")
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < least:
        raise SetupError(f"{name} is {text!r}, not a whole number from {least} on")
    return int(text)
