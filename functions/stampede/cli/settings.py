"""`stampede settings`: list every setting."""

import json
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stampede.cli.options import Data
from stampede.errors import SetupError

if TYPE_CHECKING:
    from stampede.cli.running import Running
    from stampede.config.settings import Settings


def settings(
    secrets: Annotated[
        bool,
        typer.Option(
            "--secrets", help="with the keys: a whole script, for `eval` or a file; no terminal"
        ),
    ] = False,
    aws: Annotated[
        bool,
        typer.Option(
            "--aws",
            help="only endpoint, keys and region of the store, by the names that AWS's programs "
            "and Polars, DuckDB and pyarrow know; no terminal",
        ),
    ] = False,
    data: Data = None,
) -> None:
    """List every setting in groups: what it is for, its environment variable, its value now.

    The output is a script for a shell. A setting with its default value, or unset, is a comment. So
    is a key, or a URL with a password, which is not shown without `--secrets`. The first line says
    whose settings they are: of the running `stampede up`, or those of the environment. A shell
    takes them over by one of

        eval "$(stampede settings --secrets)"

        eval "$(stampede settings --aws)"
    """
    from stampede.cli.running import running
    from stampede.config.settings import Settings

    if (secrets or aws) and sys.stdout.isatty():
        option = "--aws" if aws else "--secrets"
        raise SetupError(
            f'keys are not written to a terminal: eval "$(stampede settings {option})", or add '
            "> FILE"
        )
    system = running(data)
    typer.echo(f"# {whose(system)}")
    # So a shell that has taken them over reaches the functions too.
    values = system.settings.model_copy(update={"functions": system.urls}) if system else Settings()
    for line in for_aws(values) if aws else script(values, secrets):
        typer.echo(line)


def whose(system: "Running | None") -> str:
    """Whose settings they are, for the first line."""
    if system is None:
        return "the settings of the environment: no `stampede up` runs here"
    if system.data is None:
        return "the settings of the environment, which names the functions"
    return f"the settings of the `stampede up` with its data in {system.data}"


def script(values: "Settings", secrets: bool = False) -> Iterator[str]:
    """The lines of a shell script that sets the variables to these values.

    Keys are left out without `secrets`.
    """
    from pydantic import SecretStr

    from stampede.config.settings import GROUPS, without_secrets

    for name, field in type(values).model_fields.items():
        if name in GROUPS:
            yield f"\n# -- {GROUPS[name]}"
        if field.description:
            yield f"# {field.description}"
        value, variable = getattr(values, name), variable_of(name)
        if isinstance(value, SecretStr) and value.get_secret_value():
            if secrets:
                yield f"export {variable}={shlex.quote(value.get_secret_value())}"
            else:
                yield f"# export {variable}=...  (set, and not shown)"
        elif not secrets and (safe := without_secrets(value)) != value:
            yield f"# export {variable}={shlex.quote(text_of(safe))}  (set, and not shown in full)"
        elif value == field.get_default(call_default_factory=True):
            yield f"# export {variable}={shlex.quote(text_of(value))}"
        else:
            yield f"export {variable}={shlex.quote(text_of(value))}"


def for_aws(values: "Settings") -> Iterator[str]:
    """The lines of a shell script that lets programs of others reach the store.

    Raises `SetupError` if the store is no S3 endpoint.
    """
    from urllib.parse import urlsplit

    from stampede.store.open import first_site

    site = first_site(values)
    url = urlsplit(site.url)
    if url.scheme not in ("http", "https"):
        raise SetupError(f"{site.url} is no S3 endpoint: there are no keys to it")
    yield f"# the bucket: {url.path.strip('/')}"
    variables = {
        "AWS_ENDPOINT_URL": f"{url.scheme}://{url.netloc}",
        "AWS_ACCESS_KEY_ID": site.access_key,
        "AWS_SECRET_ACCESS_KEY": site.secret_key,
        "AWS_REGION": site.region,
        "AWS_DEFAULT_REGION": site.region,
    }
    if site.ca_file:
        variables["AWS_CA_BUNDLE"] = str(site.ca_file)
    for variable, value in variables.items():
        yield f"export {variable}={shlex.quote(value)}"


def text_of(value: Any) -> str:
    """A value as its environment variable has it; empty for one that is not set."""
    from pydantic import SecretStr

    if value is None or isinstance(value, SecretStr):
        return ""
    if isinstance(value, dict | bool):
        return json.dumps(value)
    return str(value)


def variable_of(setting: str) -> str:
    """The environment variable of a setting."""
    return "K_SINK" if setting == "sink" else f"STAMPEDE_{setting.upper()}"
