"""`stampede new`: begin an extension of Stampede."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from stampede.errors import SetupError

MOST_READ = 100  # alerts that are read to guess from

new = typer.Typer(help="Begin an extension: write its first version.", no_args_is_help=True)


@new.callback()
def _group() -> None:
    """Begin an extension: write its first version."""


@new.command()
def survey(
    name: Annotated[str, typer.Argument(help="small letters, as in the schema's name: winter")],
    paths: Annotated[list[Path], typer.Argument(help="samples: files, folders and archives")],
    into: Annotated[Path, typer.Option(help="a checkout of Stampede")] = Path("."),
) -> None:
    """Write the first version of a survey's module, from samples of its alerts.

    Guesses from the names, types, values and units of the fields which is the id, the object, the
    time, the position, the band and the flux, which are the images and the histories. Writes a
    module that decodes the samples, a test of it with copies of at most five samples, and a report
    of what was guessed and what you must look up. Nothing that is there is overwritten. Of each
    file the first five alerts are read, a hundred in all.

    Examples:

      stampede inspect samples/*.avro

      stampede new survey winter samples/*.avro

    The report says what to do next; docs/how-to/add-a-survey.md tells the whole way. A survey needs
    an integer id in each alert, an id of its object, a time, and a record with the measurement.

    Exits with 1 if the module does not decode all samples: the report says why.
    """
    from stampede.samples import report, survey_files
    from stampede.samples.sample import Sample

    samples: list[Sample] = []
    for found in islice(report.read(paths, survey_files.MOST_SAMPLES), MOST_READ):
        if isinstance(found, report.Unreadable):
            raise SetupError(f"{found.name}: {found.reason}")
        samples.append(found)
    written = survey_files.write(name, samples, into)
    for file in written.files:
        typer.echo(file)
    refusals = written.verdict.refusals
    typer.echo(
        f"The module decodes {refusals.count('')} of {len(refusals)} alerts. "
        f"{len(written.guesses.doubts)} guesses are to be looked up: read {written.files[0]}, "
        "which says what to do next.",
        err=True,
    )
    raise typer.Exit(1 if any(refusals) else 0)
