"""The command line: `stampede COMMAND`."""

import sys
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError

from stampede import __version__
from stampede.errors import StampedeError
from stampede.logs import configure_logs
from stampede.settings import Settings

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
    configure_logs()
    if name == "source":
        from stampede.events.source import main as run_source

        run_source(Settings())
        return
    from stampede.serving import serve as serve_function

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
    from stampede import setup as making

    (making.remove if remove else making.setup)(Settings(), typer.echo)


def add_commands() -> None:
    """Add the other commands. A function that starts from zero must not load what they need."""
    from stampede.bench.command import bench
    from stampede.letters.command import deadletters
    from stampede.local.commands import audit, demo, ingest, reconcile, up
    from stampede.simulator.command import simulate

    for command in (demo, up, simulate, ingest, audit, reconcile, bench):
        app.command()(command)
    app.add_typer(deadletters, name="deadletters")


def main() -> None:
    """Entry point: an error Stampede knows is one line on stderr, never a traceback."""
    if sys.argv[1:2] != ["serve"]:
        add_commands()
    try:
        app(standalone_mode=True)
    except StampedeError as error:
        complain(error.message)
    except ValidationError as error:
        wrong = (
            f"{variable_of(str(each['loc'][0]))}={each['input']}: {each['msg']}"
            for each in error.errors()
        )
        complain("; ".join(wrong))


def variable_of(setting: str) -> str:
    """The environment variable of a setting."""
    return "K_SINK" if setting == "sink" else f"STAMPEDE_{setting.upper()}"


def complain(message: str) -> NoReturn:
    """Say what is wrong and end."""
    typer.echo(f"stampede: {message}", err=True)
    sys.exit(2)
