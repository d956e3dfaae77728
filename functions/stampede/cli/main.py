"""The command line: `stampede COMMAND`."""

import sys
from importlib.metadata import entry_points
from typing import Annotated, NoReturn

import typer

from stampede import __version__
from stampede.cli.audit import audit
from stampede.cli.check_store import check_store
from stampede.cli.deadletters import deadletters
from stampede.cli.ingest import ingest
from stampede.cli.reconcile import reconcile
from stampede.cli.simulate import simulate
from stampede.errors import StampedeError
from stampede.logs import configure_logs

app = typer.Typer(
    name="stampede",
    help="Stores every alert of a sky survey and serves its cutouts and light curves.\n\n"
    "Start with `stampede up`: everything on this machine. Settings are environment variables, "
    "STAMPEDE_STORE and so on: `stampede settings` lists them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def settings() -> None:
    """List every setting: its environment variable, its value now, what it is for."""
    from stampede.settings import Settings

    for name, field in Settings.model_fields.items():
        typer.echo(f"{variable_of(name)}={getattr(Settings(), name)}")
        if field.description:
            typer.echo(f"    {field.description}")


@app.command()
def serve(
    name: Annotated[
        str,
        typer.Argument(
            help="cutouts, lightcurves, deadletters, thumbnails, replicate, compact, reconcile, "
            "read: a function; source, which sends Kafka's alerts to one; notifications, which "
            "sends the store's to the broker; or broker, which sends them to the functions"
        ),
    ],
) -> None:
    """Run one function (or the source) until it is told to stop; settings from the environment.

    SIGTERM and Ctrl-C drain it: it stops accepting, stores what it holds, answers, and exits.
    """
    from stampede.settings import Settings

    configure_logs()
    if name == "source":
        from stampede.events.source import main as run_source

        run_source(Settings())
        return
    from stampede.functions.server import serve as serve_function

    serve_function(name, Settings())


@app.command()
def setup(
    remove: Annotated[
        bool, typer.Option("--remove", help="take away topic and notifications again; never data")
    ] = False,
) -> None:
    """Have the store tell of what is put into it: bucket, topic, notifications.

    STAMPEDE_STORE is the bucket, STAMPEDE_NOTIFICATIONS the URL that is told, where
    `stampede serve notifications` listens. With STAMPEDE_REPLICA the second site's bucket is made
    too. What is there already stays as it is.
    """
    from stampede.settings import Settings
    from stampede.store import bucket_notifications

    run = bucket_notifications.remove if remove else bucket_notifications.setup
    run(Settings(), typer.echo)


for command in (simulate, ingest, audit, reconcile, check_store):
    app.command()(command)
app.add_typer(deadletters, name="deadletters")


def add_installed_commands() -> None:
    """Add the commands of other packages, such as `up` and `bench`: entry points of this group."""
    for point in entry_points(group="stampede.commands"):
        app.command(point.name)(point.load())


def main() -> None:
    """Entry point: an error Stampede knows is one line on stderr, never a traceback."""
    if sys.argv[1:2] != ["serve"]:  # a function that starts from zero has no time for it
        add_installed_commands()
    try:
        app(standalone_mode=True)
    except StampedeError as error:
        complain(error.message)
    except ValueError as error:
        complain(wrong_settings(error))


def wrong_settings(error: ValueError) -> str:
    """Which settings have a wrong value. Raises any other error again."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        raise error
    return "; ".join(
        f"{variable_of(str(each['loc'][0]))}={each['input']}: {each['msg']}"
        for each in error.errors()
    )


def variable_of(setting: str) -> str:
    """The environment variable of a setting."""
    return "K_SINK" if setting == "sink" else f"STAMPEDE_{setting.upper()}"


def complain(message: str) -> NoReturn:
    """Say what is wrong and end."""
    typer.echo(f"stampede: {message}", err=True)
    sys.exit(2)
