"""Every command that a message or a docstring tells people to type can be typed."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from stampede.cli.main import add_installed_commands, app

ROOT = Path(__file__).parents[3]
FOLDERS = ("functions/stampede", "functions/stampede_local", "client/stampede_client")
NAMED = re.compile(r"`stampede( [^`]*)`")
PLACE = re.compile(r"\{[^}]*\}|[A-Z][A-Z-]+")
"""What stands for a word that people choose."""


def named() -> dict[str, str]:
    """The commands in backticks, each with a file that has it."""
    return {
        " ".join(match.split()): str(file.relative_to(ROOT))
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*.py"))
        for match in NAMED.findall(re.sub(r'"\s*\n\s*f?"', "", file.read_text()))
    }


@pytest.fixture(scope="module")
def tree() -> TyperGroup:
    """All commands."""
    add_installed_commands()
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    return root


def fault_of(words: list[str], command: Any) -> str | None:
    """Why words cannot be typed after a command; None if they can."""
    if isinstance(command, TyperGroup):
        if not words or words[0].startswith("-") or PLACE.fullmatch(words[0]):
            return None
        if words[0] not in command.commands:
            return f"{command.name} has no command {words[0]}"
        return fault_of(words[1:], command.commands[words[0]])
    options = {name for each in command.params for name in each.opts + each.secondary_opts}
    unknown = [word for word in words if word[0] == "-" and word not in options | {"-h", "--help"}]
    takes = any(isinstance(each, TyperArgument) for each in command.params)
    values = any(
        isinstance(each, TyperOption) and not each.is_flag and {*each.opts} & {*words}
        for each in command.params
    )
    others = [word for word in words if word[0] != "-"]
    if unknown:
        return f"{command.name} has no option {unknown[0]}"
    if others and not takes and not values:
        return f"{command.name} takes no {others[0]}"
    return None


@pytest.mark.parametrize("text", named())
def test_a_named_command_exists(text: str, tree: TyperGroup) -> None:
    fault = fault_of(shlex.split(text), tree)
    assert fault is None, f"{named()[text]}: `stampede {text}`: {fault}"


@pytest.mark.parametrize("text", ["settings kafka", "audit --deeper", "lasso", "deadletters find"])
def test_one_that_does_not_exist_is_found(text: str, tree: TyperGroup) -> None:
    assert fault_of(text.split(), tree)
