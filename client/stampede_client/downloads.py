"""Many cutouts into a folder: what is there already is not asked for again."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stampede_client.errors import UnexpectedAnswer

BATCH = 200
"""Ids in one request: about 10 MB of cutouts."""

Progress = Callable[[int, int], None]
"""Called with the number of ids that are done, and of all."""


@dataclass
class Fetched:
    """What became of the ids.

    `fetched` and `skipped` count alerts; `skipped` were there already. `missing` are ids that the
    server does not have, `lost` the cutouts (``ID/kind``) that it has deleted or that are damaged.
    """

    fetched: int = 0
    skipped: int = 0
    missing: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


class Download:
    """Writes ``<folder>/<alert id>/<kind>.fits.gz``.

    The files of an alert are written into ``<alert id>.partial``, which is then renamed: a folder
    with the name of an id is whole, also if the program was stopped.
    """

    def __init__(self, ids: Iterable[str], folder: Path, progress: Progress | None) -> None:
        self._ids = list(dict.fromkeys(ids))
        self._folder, self._progress = folder, progress
        self.result = Fetched()
        folder.mkdir(parents=True, exist_ok=True)

    def batches(self) -> Iterator[list[str]]:
        """The ids that are not there yet."""
        waiting = [each for each in self._ids if not (self._folder / each).is_dir()]
        self.result.skipped = len(self._ids) - len(waiting)
        for start in range(0, len(waiting), BATCH):
            yield waiting[start : start + BATCH]

    def keep(self, tar: bytes) -> None:
        """Write the alerts of one answer. Raises `UnexpectedAnswer` if it is not whole."""
        alerts, end = _alerts(tar)
        for alert_id, files in alerts.items():
            partial = self._folder / f"{alert_id}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for name, data in files.items():
                (partial / name).write_bytes(data)
            partial.rename(self._folder / alert_id)
        result = self.result
        result.fetched += len(alerts)
        result.missing += end.get("unknown_alerts", [])
        result.lost += [*end.get("gone", []), *end.get("damaged", [])]
        if self._progress:
            done = result.skipped + result.fetched + len(result.missing)
            self._progress(done, len(self._ids))


def _alerts(tar: bytes) -> tuple[dict[str, dict[str, bytes]], dict[str, list[str]]]:
    """By alert id its files; and the last member, which says what is not there."""
    alerts: dict[str, dict[str, bytes]] = {}
    end: dict[str, list[str]] | None = None
    try:
        with tarfile.open(fileobj=io.BytesIO(tar)) as members:
            for member in members:
                file = members.extractfile(member)
                data = file.read() if file else b""
                alert_id, _, name = member.name.partition("/")
                if member.name == "missing.json":
                    end = json.loads(data)
                elif alert_id.isdecimal() and name.isascii() and "/" not in name:
                    alerts.setdefault(alert_id, {})[name] = data
                else:
                    raise UnexpectedAnswer(f"the tar has a member {member.name!r}")
    except (tarfile.TarError, ValueError) as error:
        raise UnexpectedAnswer(f"the tar is damaged: {error}; ask again") from None
    if end is None:
        raise UnexpectedAnswer("the tar ends early; ask again")
    return alerts, end
