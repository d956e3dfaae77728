"""The command line: `stampede COMMAND`."""

import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from stampede import __version__
from stampede.cli.audit import audit
from stampede.cli.check_store import check_store
from stampede.cli.deadletters import deadletters
from stampede.cli.doctor import doctor
from stampede.cli.files.light_curves import import_archive
from stampede.cli.get import get, mcp
from stampede.cli.ingest import ingest
from stampede.cli.inspect import inspect
from stampede.cli.new import new
from stampede.cli.proofs import proofs
from stampede.cli.publish import publish
from stampede.cli.purge import purge
from stampede.cli.rebuild import rebuild
from stampede.cli.reconcile import reconcile
from stampede.cli.replay import replay
from stampede.cli.serve import serve
from stampede.cli.settings import settings, variable_of
from stampede.cli.setup import setup
from stampede.cli.status import status
from stampede.cli.token import token
from stampede.cli.users import users
from stampede.errors import StampedeError
from stampede.runtime.quick_imports import quicken_imports

app = typer.Typer(
    name="stampede",
    help="Stores every alert of a sky survey and serves its cutouts and light curves.\n\n"
    "Start with `stampede up`: everything on this machine. Settings are environment variables, "
    "STAMPEDE_STORE and so on: `stampede settings` lists them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help with frames and colours took half as long again
    context_settings={"help_option_names": ["-h", "--help"]},
)


def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()


COMMANDS: dict[str, Callable[..., None]] = {
    "version": version,
    "settings": settings,
    "serve": serve,
    "mcp": mcp,
    "setup": setup,
    "users": users,
    "ingest": ingest,
    "import": import_archive,
    "inspect": inspect,
    "audit": audit,
    "status": status,
    "doctor": doctor,
    "reconcile": reconcile,
    "rebuild": rebuild,
    "purge": purge,
    "replay": replay,
    "check-store": check_store,
}
GROUPS = {
    "get": get,
    "publish": publish,
    "proofs": proofs,
    "deadletters": deadletters,
    "token": token,
    "new": new,
}

for name, command in COMMANDS.items():
    app.command(name)(command)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def add_installed_commands() -> None:
    """Add the commands of other packages, for example `up` and `bench`, from entry points."""
    from importlib.metadata import entry_points

    for point in entry_points(group="stampede.commands"):
        app.command(point.name)(point.load())


def main() -> None:
    """Entry point: an error that Stampede knows is one line on stderr, never a traceback."""
    quicken_imports()
    # A command of this package does not load the others: a function must start from zero fast.
    if not {*COMMANDS, *GROUPS} & set(sys.argv[1:2]):
        add_installed_commands()
    try:
        app(standalone_mode=True)
    except StampedeError as error:
        complain(error.message)
    except ValueError as error:
        complain(wrong_settings(error))


def wrong_settings(error: ValueError) -> str:
    """The settings with a wrong value, and why. Raises any other error again."""
    from pydantic import ValidationError

    from stampede.config.settings import input_of

    if not isinstance(error, ValidationError):
        raise error
    return "; ".join(
        f"{variable_of(str(each['loc'][0]))}={input_of(each)}: {each['msg']}"
        for each in error.errors()
    )


def complain(message: str) -> NoReturn:
    """Print what is wrong on stderr, and exit with 2."""
    typer.echo(f"stampede: {message}", err=True)
    sys.exit(2)
