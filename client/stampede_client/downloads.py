"""Many cutouts into a folder: what is there already is not asked for again."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stampede_client.responses import Tar

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
    Alerts that are unreadable or have a damaged cutout are not written, and so are asked for again.
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
        self._asked = 0  # ids that are there or have been asked for
        folder.mkdir(parents=True, exist_ok=True)

    def batches(self) -> Iterator[list[str]]:
        """The ids that are not there yet."""
        waiting = [each for each in self._ids if not (self._folder / each).is_dir()]
        self._asked = self.result.skipped = len(self._ids) - len(waiting)
        for start in range(0, len(waiting), BATCH):
            batch = waiting[start : start + BATCH]
            self._asked += len(batch)
            yield batch

    def keep(self, tar: Tar) -> None:
        """Write the alerts of one response, but for those that could not be read wholly."""
        unreadable, damaged = (
            tar.absent.get(reason, []) for reason in ("unreadable_alerts", "damaged")
        )
        whole = tar.alerts.keys() - {*unreadable, *(name.partition("/")[0] for name in damaged)}
        for alert_id in whole:
            self._write(alert_id, tar.alerts[alert_id])
        result = self.result
        result.fetched += len(whole)
        result.missing += tar.absent.get("unknown_alerts", [])
        result.lost += [*tar.absent.get("gone", []), *damaged]
        result.unreadable += unreadable
        if self._progress:
            self._progress(self._asked, len(self._ids))

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
