"""`stampede settings`: list every setting."""

import json
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from stampede.cli.options import Data

if TYPE_CHECKING:
    from stampede.config.settings import Settings


def settings(data: Data = None) -> None:
    """List every setting in groups: what it is for, its environment variable, its value now.

    The output is a script for a shell. A setting with its default value, or unset, is a comment. So
    is a key, which is not shown. Lists the settings of the running `stampede up`, or those of the
    environment.
    """
    from stampede.cli.running import running
    from stampede.config.settings import Settings

    system = running(data)
    for line in script(system.settings if system else Settings()):
        typer.echo(line)


def script(values: "Settings") -> Iterator[str]:
    """The lines of a shell script that sets the variables to these values."""
    from pydantic import SecretStr

    from stampede.config.settings import GROUPS

    for name, field in type(values).model_fields.items():
        if name in GROUPS:
            yield f"\n# -- {GROUPS[name]}"
        if field.description:
            yield f"# {field.description}"
        value, variable = getattr(values, name), variable_of(name)
        if isinstance(value, SecretStr) and value.get_secret_value():
            yield f"# export {variable}=...  (set, and not shown)"
        elif value == field.get_default(call_default_factory=True):
            yield f"# export {variable}={shlex.quote(text_of(value))}"
        else:
            yield f"export {variable}={shlex.quote(text_of(value))}"


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
