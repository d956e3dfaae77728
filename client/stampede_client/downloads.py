"""Many cutouts into a folder: what is there already is not asked for again."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stampede_client.answers import Tar

BATCH = 200
"""Ids in one request: about 10 MB of cutouts."""

Progress = Callable[[int, int], None]
"""Called with the number of ids that are done, and of all."""


@dataclass
class Fetched:
    """What became of the ids.

    `fetched` and `skipped` count alerts; `skipped` were there already. `missing` are ids that the
    server does not have, `lost` the cutouts (``ID/kind``) that it has deleted or that are damaged,
    `unreadable` the ids of which cutouts may be stored that it cannot find now: ask again later.
    """

    fetched: int = 0
    skipped: int = 0
    missing: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


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

    def keep(self, tar: Tar) -> None:
        """Write the alerts of one answer, but for those that could not be read wholly."""
        unreadable = tar.absent.get("unreadable_alerts", [])
        whole = tar.alerts.keys() - {*unreadable}
        for alert_id in whole:
            self._write(alert_id, tar.alerts[alert_id])
        result = self.result
        result.fetched += len(whole)
        result.missing += tar.absent.get("unknown_alerts", [])
        result.lost += [*tar.absent.get("gone", []), *tar.absent.get("damaged", [])]
        result.unreadable += unreadable
        if self._progress:
            done = result.skipped + result.fetched + len(result.missing) + len(result.unreadable)
            self._progress(done, len(self._ids))

    def _write(self, alert_id: str, files: dict[str, bytes]) -> None:
        partial = self._folder / f"{alert_id}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            for name, data in files.items():
                (partial / name).write_bytes(data)
            partial.rename(self._folder / alert_id)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
