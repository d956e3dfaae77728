"""Options that commands share."""

from collections.abc import Iterator

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from stampede.cli.main import app
from stampede_local import cli as local

# They use no system: `serve` is a part of one, with the settings that it is given; two make keys,
# two read samples of alerts.
WITHOUT = {"version", "serve", "token new", "proofs key", "inspect", "new survey"}


def commands() -> Iterator[tuple[str, TyperCommand]]:
    """Every command with its name."""
    app.command("up")(local.up)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            for sub, each in command.commands.items():
                yield f"{name} {sub}", each
        else:
            yield name, command


def test_help_says_which_options_of_audit_need_deep() -> None:
    options = {option.name: option for option in dict(commands())["audit"].params}
    for name in ("site", "repair"):
        assert "only with --deep" in str(options[name].help)


@pytest.mark.parametrize(("name", "command"), [pytest.param(*c, id=c[0]) for c in commands()])
def test_every_command_that_uses_a_system_takes_its_directory(name: str, command) -> None:
    options = {option.name: option for option in command.params}
    assert ("data" in options) == (name not in WITHOUT)
    if "data" in options:
        assert options["data"].envvar == "STAMPEDE_DATA"
