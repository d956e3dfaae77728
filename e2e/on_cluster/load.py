"""Alerts that are sent while something changes, and the proof that all of them are stored."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from e2e.background import background, repeat
from e2e.commands import until
from e2e.http import get
from e2e.on_cluster.release import Release
from stampede_simulator.simulator import Mix, Simulator
from tests.support.store import stored_alerts

PART = 50  # alerts that are sent by one command


def simulated_alerts(seed: int, count: int) -> tuple[Simulator, list]:
    """The simulator, with the light curves, and the alerts that `stampede simulate` sends."""
    simulator = Simulator(seed, mix=Mix(solar_system=0.05, null_cutouts=0.01))
    return simulator, list(simulator.alerts(count))


def simulate(release: Release, seed: int, count: int, rate: int = 0, *options: object) -> None:
    """Send alerts, and wait until they are in Kafka. The options are more of `stampede simulate`.

    They are sent once more if a change of the release ends the toolbox's pod meanwhile. A seed is
    of one test alone: two of them would send different points of the same objects.
    """
    line = ("simulate", "--alerts", count, "--seed", seed, "--rate", rate, *options)
    seconds = 120 + (count / rate if rate else 0)

    def sent() -> bool:
        done = release.stampede(*line, check=False, seconds=seconds)
        if done.status:
            print(done.report())
        return not done.status

    until(sent, 300)


def assert_all_of_it_is_stored(release: Release, seed: int, count: int) -> None:
    """Compare the ledger, the bytes of each cutout, and every point of every light curve."""
    release.wait_until_stored(seconds=400)
    assert_it_is_read(release, seed, count)


def assert_it_is_read(release: Release, seed: int, count: int) -> None:
    """Compare the bytes of each cutout, and every point of every light curve."""
    simulator, alerts = simulated_alerts(seed, count)
    bulk = release.url("bulk")
    stored = stored_alerts.stored_cutouts(bulk, [alert.alert_id for alert in alerts])
    assert not stored_alerts.differences(stored_alerts.cutouts_of(alerts), stored)
    assert stored_alerts.assert_light_curves(bulk, simulator)


def lacking_thumbnails(release: Release) -> list[str]:
    """What `reconcile` says of packs without thumbnails."""
    output = release.stampede("reconcile", "--dry-run", check=False).output
    return [line for line in output.splitlines() if line.startswith("without-thumbnails")]


@contextmanager
def reads(release: Release, seed: int) -> Iterator[None]:
    """Read a cutout again and again; assert that each response was right."""
    simulate(release, seed, PART)
    release.wait_until_stored()
    known = next(alert for alert in simulated_alerts(seed, PART)[1] if alert.fits["science"])
    url = f"{release.url('read')}/v1/alerts/{known.alert_id}/cutouts/science"

    def read() -> None:
        assert get(url) == known.fits["science"]

    with repeat(read) as log:
        yield
    assert not log.errors
    assert len(log.seconds) > 100


@contextmanager
def sending(
    release: Release, seeds: Sequence[int], count: int = PART, rate: int = 0, *options: object
) -> Iterator[list[int]]:
    """Send alerts of one seed after the other, until the ``with`` block ends; the seeds sent.

    For each seed as `simulate` does.
    """
    sent = list[int]()

    def send(stop: threading.Event) -> None:
        for seed in seeds:
            if stop.is_set():
                return
            simulate(release, seed, count, rate, *options)
            sent.append(seed)

    with background(send):
        yield sent


@contextmanager
def under_load(release: Release, seeds: Sequence[int]) -> Iterator[None]:
    """Send parts, each of its seed, and read, until the ``with`` block ends.

    Then all that was sent is stored at both sites, and no read failed.
    """
    first, *rest = seeds
    with reads(release, first):
        with sending(release, rest, rate=5) as sent:
            yield
        release.wait_until_stored(seconds=400)
    assert_both_sites_have(release, sent)


def assert_both_sites_have(release: Release, sent: Sequence[int]) -> None:
    """Assert that the parts of these seeds are read, and that the second site has all objects."""
    assert sent
    for seed in sent:
        assert_it_is_read(release, seed, PART)
    release.wait_until_stored("--site", "replica", seconds=400)
