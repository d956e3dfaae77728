"""`stampede inspect`: what files of alerts hold."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def inspect(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="files, folders and archives of alerts: .avro, .tar, .zip, also compressed"
        ),
    ],
    most: Annotated[
        int, typer.Option(min=1, help="alerts of each file that are read: the first ones")
    ] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="a JSON object per line")] = False,
) -> None:
    """Show what files of alerts hold, whichever survey they are of.

    For each schema in a file: how the alerts are framed, the schema's name and version, whether
    Stampede knows the survey and would store the first alert, or why not; then every field of that
    alert with its type, its value and what the schema says of it. Images are named with their
    format and size, histories with the number of their entries. Values of the records in an array
    are those of its first one. No store is needed, and nothing is written.

    Examples:

      stampede inspect alert.avro

      stampede inspect night.tar.gz --json | jq '.survey, .histories'

      stampede inspect alert.avro | grep -i mag

    To add the survey of these alerts: `stampede new survey --help`.

    Exits with 1 if anything in the files cannot be read; stderr says where, and why.
    """
    from stampede.samples import report

    status, parting = 0, ""
    for found in report.inspect(paths, most):
        if isinstance(found, report.Unreadable):
            status = 1
            typer.echo(f"{found.name}: {found.reason}", err=True)
        elif as_json:
            typer.echo(json.dumps(report.as_dict(found)))
        else:
            typer.echo(parting + report.as_text(found))
            parting = "\n"
    sys.exit(status)
