"""An archive that is a set of alerts in Avro: in files, loose, zipped or in tars."""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice

import numpy as np

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framing
from stampede.comparison.compare import Held, Place
from stampede.config.settings import Settings
from stampede.events.kafka.schema_registry import schemas_of
from stampede.handlers.decoding import DecoderFile
from stampede.ingest import files
from stampede.ingest.records import FileAlert
from stampede.proofs.leaves import ID_BYTES, WIDTH, no_entries, united
from stampede.runtime.counts import counted
from stampede.store.programmes.rights import Rights

BATCH = 200
"""Alerts that are decoded at once."""


class AlertFiles:
    """Alerts in files; they are read once.

    Parameters
    ----------
    alerts
        What the files hold.
    progress
        Called with what was read so far, for people.

    Attributes
    ----------
    faults
        What is in these files and is no alert that could be stored, with the reason.
    """

    def __init__(
        self, alerts: Iterable[FileAlert], settings: Settings, progress: Callable[[str], None]
    ) -> None:
        self._decoder = BatchDecoder(
            Framing(files.MIB * 16, schemas_of(settings)),
            Decoder(DecoderFile(settings.spool)),
            latest_mjd=lambda: math.inf,
            secret=os.urandom(12),
            programids=Rights.of(settings).programids or frozenset(),
        )
        self.faults: list[str] = []
        self._progress = progress
        self._held = self._read(iter(alerts))

    def nights(self) -> list[Place]:
        """The surveys and nights of the alerts."""
        return sorted(self._held)

    def held(self, place: Place, ours: np.ndarray) -> tuple[np.ndarray, Held]:
        """See `Archive.held`."""
        return ours, self._held.get(place, Held(no_entries()))

    def rest(self) -> np.ndarray:
        """None: each alert has its night."""
        return np.zeros(0, np.int64)

    def _read(self, alerts: Iterator[FileAlert]) -> dict[Place, Held]:
        rows: dict[Place, list[bytes]] = defaultdict(list)
        count = 0
        while some := list(islice(alerts, BATCH)):
            for place, entry in self._entries(some):
                rows[place].append(entry)
            count += len(some)
            self._progress(f"{counted(count, 'alert')}")
        return {place: _held(entries) for place, entries in rows.items()}

    def _entries(self, some: Sequence[FileAlert]) -> Iterator[tuple[Place, bytes]]:
        good = [each for each in some if each.fault is None]
        self.faults += [f"{each.name}: {each.fault}" for each in some if each.fault]
        decoded = self._decoder.detections([each.data for each in good])
        self.faults += [
            f"{each.name}: {fault.message}"
            for each, fault in zip(good, decoded.faults, strict=True)
            if fault
        ]
        for group in decoded.groups:
            ids, mjd = (group.heads[name].to_pylist() for name in ("alert_id", "mjd"))
            for alert_id, when, record in zip(ids, mjd, group.records, strict=True):
                entry = alert_id.to_bytes(ID_BYTES, "big") + sha256(record).digest()
                yield (group.survey.NAME, math.floor(when)), entry


def _held(rows: Sequence[bytes]) -> Held:
    entries = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, WIDTH)
    each, counts = np.unique(entries, axis=0, return_counts=True)
    ids = np.ascontiguousarray(each[counts > 1][:, :ID_BYTES]).view(">i8").ravel()
    return Held(united(entries), True, np.unique(ids.astype(np.int64)))
