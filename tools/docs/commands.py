"""The page of the command line, from the help of each command."""

from collections.abc import Iterator
from importlib.metadata import entry_points

from typer.main import get_command
from typer.testing import CliRunner

from stampede.cli.main import add_installed_commands, app

WIDTH = 100
HEAD = """# Commands

What `stampede COMMAND --help` prints. `stampede --install-completion` makes your shell complete
commands and options. The exit status of a command is 0 if all went well, 1 if it found something
wrong, 2 if it could not do what you asked, and 130 after Ctrl-C.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for words in sorted(commands()):
        name = " ".join(words)
        parts.append(f"\n## stampede {name}\n\n```text\n{help_of(words)}\n```\n")
    return "".join(parts)


def commands() -> Iterator[tuple[str, ...]]:
    """The words of each command: ("audit",) or ("deadletters", "list")."""
    installed = {point.name for point in entry_points(group="stampede.commands")}
    if not installed <= {command.name for command in app.registered_commands}:
        add_installed_commands()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        if below := getattr(command, "commands", None):
            yield from ((name, each) for each in below)
        else:
            yield (name,)


def help_of(words: tuple[str, ...], width: int = WIDTH) -> str:
    """What `--help` of a command prints on a terminal of so many columns."""
    shown = CliRunner().invoke(
        app, [*words, "--help"], prog_name="stampede", env={"COLUMNS": str(width), "TERM": "dumb"}
    )
    assert shown.exit_code == 0, shown.output
    return shown.stdout.rstrip()
