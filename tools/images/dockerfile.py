"""Parse a Dockerfile into stages of steps. Raises ValueError for unknown instructions."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Copy(NamedTuple):
    """COPY: from the build context, or from another stage."""

    stage: str | None
    sources: tuple[str, ...]
    target: str


class Run(NamedTuple):
    """RUN: a shell command."""

    command: str


class Env(NamedTuple):
    """ENV: variables for the steps that follow and for the container."""

    variables: Mapping[str, str]


Step = Copy | Run | Env


class Stage:
    """FROM: one stage.

    Attributes
    ----------
    name
        ``""`` for a stage without a name.
    parent
        The name of an earlier stage or of an image.
    steps
        In order.
    user, entrypoint
        Those of the container; None to inherit the parent's.
    """

    def __init__(self, name: str, parent: str) -> None:
        self.name, self.parent = name, parent
        self.steps: list[Step] = []
        self.user: str | None = None
        self.entrypoint: list[str] | None = None


def read(path: Path, arguments: Mapping[str, str] | None = None) -> list[Stage]:
    """The stages of a Dockerfile.

    Parameters
    ----------
    path
        The file.
    arguments
        Values of its ARGs, for FROM.

    Raises
    ------
    ValueError
        An instruction or an option is unknown; the message has file and line.
    """
    values, stages = dict(arguments or {}), list[Stage]()
    for number, line in _lines(path.read_text()):
        word, _, rest = line.partition(" ")
        try:
            _take(word, rest.strip(), stages, values)
        except (ValueError, IndexError) as error:
            raise ValueError(f"{path}, line {number}: cannot do `{word}`: {error}") from None
    return stages


def _take(word: str, rest: str, stages: list[Stage], arguments: dict[str, str]) -> None:
    if word == "ARG" and not stages:
        name, _, default = rest.partition("=")
        arguments.setdefault(name, default)
    elif word == "FROM":
        rest = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], rest)
        parent, *named = rest.split()
        stages.append(Stage(named[1] if named else "", parent))
    elif word == "RUN":
        stages[-1].steps.append(Run(rest))
    elif word == "COPY":
        *sources, target = rest.split()
        stage = None
        if sources[0].startswith("--from="):
            stage = sources.pop(0).removeprefix("--from=")
        if any(source.startswith("--") for source in sources):
            raise ValueError("its only option is --from")
        stages[-1].steps.append(Copy(stage, tuple(sources), target))
    elif word == "ENV":
        pairs = [pair.partition("=") for pair in shlex.split(rest)]
        stages[-1].steps.append(Env({name: value for name, _, value in pairs}))
    elif word == "USER":
        stages[-1].user = rest
    elif word == "ENTRYPOINT":
        stages[-1].entrypoint = json.loads(rest)
    else:
        raise ValueError("not an instruction known here")


def _lines(text: str) -> list[tuple[int, str]]:
    """Instructions with their line numbers, without comments and with continued lines joined."""
    instructions: list[tuple[int, str]] = []
    begun = False
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if begun:
            first, text_so_far = instructions[-1]
            instructions[-1] = (first, f"{text_so_far} {line}")
        else:
            instructions.append((number, line))
        begun = line.endswith("\\")
        if begun:
            first, text_so_far = instructions[-1]
            instructions[-1] = (first, text_so_far[:-1].rstrip())
    return instructions
