"""The images of many alerts as files. The same command goes on where it was stopped."""

import json
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import urllib3

from stampede.alerts.columns import KINDS
from stampede.cli.download import Server
from stampede.errors import SetupError, StampedeError
from stampede.runtime.progress import Progress, silent

BATCH = 200
"""Alerts in one request: about 10 MB of images."""
END = "missing.json"
"""The last member of a response: lists of what is not there, by reason."""
UNREADABLE, DAMAGED = "unreadable_alerts", "damaged"
"""In it the alerts of which cutouts may be stored that cannot be found, and cutouts (ID/kind)."""
NAMES = frozenset(f"{kind}.fits.gz" for kind in KINDS)


class Fetched(NamedTuple):
    """Files that were written, alerts that were there already, and lists of what is not there."""

    files: int
    there: int
    absent: dict[str, list[str]]


def fetch(server: Server, ids: Iterable[str], folder: Path, progress: Progress = silent) -> Fetched:
    """Write the cutouts of alerts to ``<folder>/<alert id>/<kind>.fits.gz``.

    The files of an alert are written into ``<alert id>.partial``, which is renamed when the
    response is whole. So a folder with the name of an id is whole, and is not asked for again. An
    alert that cannot be read wholly, or has a damaged cutout, gets no folder.

    Raises
    ------
    SetupError
        If there is no response, or the files cannot be written.
    StampedeError
        If the response is an error, is damaged or ends early.
    """
    asked = [*dict.fromkeys(ids)]
    waiting = [each for each in asked if not (each.isdecimal() and (folder / each).is_dir())]
    there, files = len(asked) - len(waiting), 0
    absent: dict[str, list[str]] = {}
    for start in range(0, len(waiting), BATCH):
        batch = waiting[start : start + BATCH]
        written, missing = _fetch_batch(server, batch, folder)
        files += written
        for reason, found in missing.items():
            absent.setdefault(reason, []).extend(found)
        if len(waiting) > BATCH:
            progress(f"{there + start + len(batch):,} of {len(asked):,} alerts")
    return Fetched(files, there, absent)


def _fetch_batch(server: Server, ids: list[str], folder: Path) -> tuple[int, dict[str, list[str]]]:
    """Write the files of one response; how many, and what is not there."""
    # What is no number is no id, but might be a path.
    partial = {each: folder / f"{each}.partial" for each in ids if each.isdecimal()}
    try:
        with server.answer("/v1/cutouts", {"format": "tar"}, {"ids": ids}) as response:
            files, absent = _extract(response, partial)
        whole = files.keys() - {*absent.get(UNREADABLE, ()), *_alerts_of(absent.get(DAMAGED, ()))}
        for alert_id in whole:
            partial[alert_id].rename(folder / alert_id)
    except (tarfile.TarError, ValueError) as error:
        raise StampedeError(f"the answer is damaged: {error}; try again") from None
    except OSError as error:
        raise SetupError(f"cannot write to {folder}: {error.strerror or error}") from None
    finally:
        for path in partial.values():
            shutil.rmtree(path, ignore_errors=True)
    return sum(files[alert_id] for alert_id in whole), absent


def _alerts_of(cutouts: Iterable[str]) -> set[str]:
    """The alert ids of cutouts that are named ID/kind."""
    return {name.partition("/")[0] for name in cutouts}


def _extract(
    response: urllib3.BaseHTTPResponse, partial: Mapping[str, Path]
) -> tuple[Counter[str], dict[str, list[str]]]:
    """Write the files of a tar into the folder of each alert; how many, and what is not there.

    A server decides about bytes alone: names are those that were asked for, and modes our own.
    """
    files: Counter[str] = Counter()
    with tarfile.open(fileobj=response, mode="r|") as members:
        for member in members:
            content = members.extractfile(member) if member.isreg() else None
            if content is None:
                raise StampedeError(f"the answer has {member.name!r:.80}, which is not a file")
            if member.name == END:
                return files, _lists(content.read())
            alert_id, _, name = member.name.partition("/")
            if alert_id not in partial or name not in NAMES:
                raise StampedeError(f"the answer has {member.name!r:.80}: nobody asked for it")
            path = partial[alert_id]
            if not files[alert_id]:
                shutil.rmtree(path, ignore_errors=True)  # what a program left that was killed
                path.mkdir(parents=True)
            with (path / name).open("wb") as file:
                shutil.copyfileobj(content, file)
            files[alert_id] += 1
    raise StampedeError("the answer ends early: try again")


def _lists(data: bytes) -> dict[str, list[str]]:
    """The lists of `END` that are not empty. Raises `ValueError`."""
    lists = json.loads(data)
    if not isinstance(lists, dict):
        raise ValueError(f"{END} is no JSON object")
    for name, found in lists.items():
        if not isinstance(found, list) or not all(map(_is_plain, (name, *found))):
            raise ValueError(f"{END} has no lists of ids")
    return {reason: found for reason, found in lists.items() if found}


def _is_plain(text: object) -> bool:
    """Whether a terminal shows it as it is."""
    return isinstance(text, str) and text.isprintable()
