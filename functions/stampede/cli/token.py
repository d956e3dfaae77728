"""`stampede token`: bearer tokens for the read service."""

from typing import Annotated

import typer

token = typer.Typer(help="Tokens for `read`.", no_args_is_help=True)


@token.callback()
def _group() -> None:
    """Tokens for `read`."""


@token.command()
def new(
    name: Annotated[str, typer.Option(help="whose token it is; shown in logs, no spaces")],
    scope: Annotated[
        list[str],
        typer.Option(
            help="pages, cutouts, lightcurves, bulk, ledger or * for all; may be repeated"
        ),
    ],
    days: Annotated[int | None, typer.Option(min=1, help="days until it expires")] = None,
) -> None:
    """Make a token: print it once, and the line for the file that STAMPEDE_TOKENS names."""
    from datetime import UTC, datetime, timedelta

    from stampede.read.access import bearer_tokens

    expires = datetime.now(UTC).date() + timedelta(days=days) if days else None
    text = bearer_tokens.new_token()
    line = bearer_tokens.line_of(text, name, scope, expires)
    typer.echo("The token; it is shown only now:", err=True)
    typer.echo(text)
    typer.echo("The line for the file of tokens:", err=True)
    typer.echo(line)
