"""The images of many alerts as files. The same command goes on where it was stopped."""

import json
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import urllib3

from stampede.cli.download import Server, is_whole
from stampede.errors import SetupError, StampedeError
from stampede.progress import Progress, silent

BATCH = 200
"""Alerts in one request: about 10 MB of images."""
END = "missing.json"
"""The last member of an answer: lists of what is not there, by reason."""


class Fetched(NamedTuple):
    """Files that were written, alerts that were there already, and lists of what is not there."""

    files: int
    there: int
    absent: dict[str, list[Any]]


def fetch(server: Server, ids: Iterable[str], folder: Path, progress: Progress = silent) -> Fetched:
    """Write the cutouts of alerts to ``<folder>/<alert id>/<kind>.fits.gz``.

    The files of an alert are written into ``<alert id>.partial``, which is renamed when the answer
    is whole. So a folder with the name of an id is whole, and is not asked for again.

    Raises
    ------
    SetupError
        If there is no answer, or the files cannot be written.
    StampedeError
        If the answer is an error, is damaged or ends early.
    """
    asked = [*dict.fromkeys(ids)]
    waiting = [each for each in asked if not (each.isdecimal() and (folder / each).is_dir())]
    there, files = len(asked) - len(waiting), 0
    absent: dict[str, list[Any]] = {}
    for start in range(0, len(waiting), BATCH):
        batch = waiting[start : start + BATCH]
        written, missing = _fetch_batch(server, batch, folder)
        files += written
        for reason, found in missing.items():
            absent.setdefault(reason, []).extend(found)
        if len(waiting) > BATCH:
            progress(f"{there + start + len(batch):,} of {len(asked):,} alerts")
    return Fetched(files, there, absent)


def _fetch_batch(server: Server, ids: list[str], folder: Path) -> tuple[int, dict[str, list[Any]]]:
    """Write the files of one answer; how many, and what is not there."""
    try:
        with server.answer("/v1/cutouts", {"format": "tar"}, ids) as answer:
            files, absent = _extract(answer, folder)
            is_whole(answer)
        for alert_id in files:
            _partial(folder, alert_id).rename(folder / alert_id)
    except (tarfile.TarError, ValueError) as error:
        raise StampedeError(f"the answer is damaged: {error}; try again") from None
    except OSError as error:
        raise SetupError(f"cannot write to {folder}: {error.strerror or error}") from None
    return files.total(), absent


def _extract(
    answer: urllib3.BaseHTTPResponse, folder: Path
) -> tuple[Counter[str], dict[str, list[Any]]]:
    """Write the files of a tar; how many of each alert, and what is not there."""
    files: Counter[str] = Counter()
    with tarfile.open(fileobj=answer, mode="r|") as members:
        for member in members:
            if member.name == END:
                lists = json.load(members.extractfile(member))  # type: ignore[arg-type]
                return files, {reason: found for reason, found in lists.items() if found}
            alert_id, _, name = member.name.partition("/")
            partial = _partial(folder, alert_id)
            if not files[alert_id]:  # what a program left that was stopped
                shutil.rmtree(partial, ignore_errors=True)
            member.name = f"{partial.name}/{name}"
            members.extract(member, folder, filter="data")
            files[alert_id] += 1
    raise StampedeError("the answer ends early: try again")


def _partial(folder: Path, alert_id: str) -> Path:
    return folder / f"{alert_id}.partial"
