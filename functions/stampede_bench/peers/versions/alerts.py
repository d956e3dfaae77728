"""The alerts of a comparison: what an earlier version's simulator makes, so that both take them."""

import json
import os
import subprocess
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from stampede.errors import StampedeError
from stampede_bench.ingestion.ingest import HISTORY
from stampede_bench.instruments.load import Load
from stampede_bench.peers.checkout import Checkout

_PROGRAM = Path(__file__).parents[1] / "programs" / "stampede_alerts.py"
# Most of a simulator's time goes to the nights before. An object has two alerts here.
ALERTS_OF_AN_OBJECT = 2


class Wanted(NamedTuple):
    """How many alerts of a survey: to warm up, and in each of the rounds."""

    survey: str
    warm: int
    in_round: int
    rounds: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.warm + self.rounds * self.in_round


class Sent(NamedTuple):
    """Alerts of a survey: those that are stored first, then those of each round."""

    whole: Load
    warm: list[bytes]
    rounds: list[list[bytes]]

    @property
    def survey(self) -> str:
        """Whose they are."""
        return self.whole.survey


def simulated(checkout: Checkout, folder: Path, wanted: list[Wanted]) -> Iterator[Sent]:
    """Simulate the surveys' alerts at the same time. Raises `StampedeError` if a program fails."""
    running = [program(checkout, folder, one) for one in wanted]
    try:
        for one, child in zip(wanted, running, strict=True):
            told, _ = child.communicate()
            if child.returncode:
                raise StampedeError(f"{checkout.title} simulates no alerts: {told[-1000:]}")
            yield sent(folder, one)
    finally:
        for child in running:
            child.kill()
            child.wait()


def program(checkout: Checkout, folder: Path, wanted: Wanted) -> "subprocess.Popen[str]":
    """The process that makes the alerts of a survey."""
    objects = max(20, wanted.total // ALERTS_OF_AN_OBJECT)
    numbers = wanted.total, HISTORY[wanted.survey], objects
    return subprocess.Popen(
        [checkout.python, str(_PROGRAM), wanted.survey, *map(str, numbers), str(folder)],
        env=os.environ | checkout.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def sent(folder: Path, wanted: Wanted) -> Sent:
    """The alerts that the program has written. Raises `StampedeError` if there are fewer."""
    about = json.loads((folder / f"{wanted.survey}.json").read_text())
    data = (folder / f"{wanted.survey}.avro").read_bytes()
    ends = accumulate(about["sizes"], initial=0)
    messages = [data[begin:end] for begin, end in pairwise(ends)]
    if len(messages) < wanted.total:
        raise StampedeError(f"only {len(messages)} of {wanted.total} alerts were simulated")
    ids = [(alert_id, object_id) for alert_id, object_id in about["ids"]]
    begins = range(wanted.warm, wanted.total, wanted.in_round)
    return Sent(
        Load(wanted.survey, about["description"], messages, ids),
        messages[: wanted.warm],
        [messages[begin : begin + wanted.in_round] for begin in begins],
    )
