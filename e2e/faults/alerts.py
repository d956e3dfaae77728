"""What was sent, in memory of a bounded size, and the comparison with what is stored."""

import hashlib
from collections.abc import Iterator

from e2e.http import get
from stampede.alerts.columns import KINDS
from stampede.images.thumbnail import thumbnail
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Simulator
from tests.support.store import stored_alerts

AT_ONCE = 200  # alerts compared together
EVERY = 50  # of which one has its thumbnail compared


class Sent:
    """The ids of all alerts, the digest of every image, and the messages to be refused."""

    def __init__(self) -> None:
        self.images: dict[tuple[str, int, str], str] = {}
        self.ids: set[int] = set()
        self.with_images: set[tuple[str, int]] = set()
        self.refused: dict[str, set[bytes]] = {"cutouts": set(), "detections": set()}
        self.sample: list[SimulatedAlert] = []
        self._stopped = False

    def record(self, alerts: Iterator[SimulatedAlert]) -> Iterator[SimulatedAlert]:
        """Pass alerts on and remember them, until `stop` is called."""
        for number, alert in enumerate(alerts):
            if self._stopped:
                return
            if alert.fault is not None:
                for table in stored_alerts.refused_by(alert.fault):
                    self.refused[table].add(alert.body)
            else:
                self.ids.add(alert.alert_id)
                images = stored_alerts.cutouts_of([alert])
                self.images |= {key: _digest(fits) for key, fits in images.items()}
                if images:
                    self.with_images.add((alert.survey, alert.alert_id))
                if number % EVERY == 0 and len(images) == len(KINDS):
                    self.sample.append(alert)
            yield alert

    def stop(self) -> None:
        """Pass no more alerts on."""
        self._stopped = True

    @property
    def undecodable(self) -> int:
        """Number of messages that a function must refuse."""
        return len(set().union(*self.refused.values()))

    def compare(self, read: str, simulator: Simulator) -> str:
        """Assert that a site serves every image and every point as it was sent; what was seen."""
        ids, images = sorted(self.ids), 0
        for first in range(0, len(ids), AT_ONCE):
            some = ids[first : first + AT_ONCE]
            stored = stored_alerts.stored_cutouts(read, some)
            found = {key: _digest(fits) for key, fits in stored.items()}
            among = set(some)
            sent = {key: value for key, value in self.images.items() if key[1] in among}
            assert found == sent, sorted(found.items() ^ sent.items())[:5]
            images += len(found)
        points = stored_alerts.assert_light_curves(read, simulator)
        for alert in self.sample:
            picture = get(f"{read}/v1/alerts/{alert.alert_id}/thumbnail?survey={alert.survey}")
            assert picture == thumbnail([alert.fits[kind] for kind in KINDS], alert.survey).png
        return f"{images:,} images and {points:,} points as they were sent"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
