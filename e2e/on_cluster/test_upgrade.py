"""No read fails and no alert is lost while the chart is upgraded."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.cluster.existing import ExistingCluster
from e2e.commands import until
from e2e.on_cluster.earlier import REPOSITORY, last_release
from e2e.on_cluster.load import (
    assert_all_of_it_is_stored,
    reads,
    simulate,
    simulated_alerts,
)
from e2e.on_cluster.release import Release

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

LIMIT = "the limit is"  # part of the reason of a dead letter that is too large
# Print the names of the store's topics, without those that RGW makes for each notification.
TOPICS = """
from stampede.config.settings import Settings
from stampede.store.ceph.bucket_notifications import NotifyingBucket
from stampede.store.open import first_site
names = (topic.name for topic in NotifyingBucket(first_site(Settings())).topics())
print(*(name for name in names if "_" not in name))
"""


def test_to_the_last_release_and_back_with_poison_alerts(release: Release, tmp_path: Path) -> None:
    """N to N-1 to N under load, chart and image; what N-1 refuses by a size limit, N replays.

    Notifications arrive after each change.
    """
    if isinstance(release.cluster.backend, ExistingCluster):
        pytest.skip("the nodes of this cluster take no images from here")
    earlier = last_release(tmp_path / "earlier")
    release.cluster.backend.load(earlier.archive)
    _, alerts = simulated_alerts(56, 500)
    limit = sorted(len(alert.body) for alert in alerts)[-50]  # 50 alerts are at least as large

    def refused() -> int:
        line = ("stampede", "deadletters", "list", "cutouts", "--reason", LIMIT, "--json")
        return len(release.in_toolbox(*line).output.splitlines())

    def topics() -> list[str]:
        return sorted(release.python(TOPICS).split())

    named, now = topics(), release.image()
    with reads(release, 55):
        before = {pod["metadata"]["name"] for pod in release.pods("read")}
        values = earlier.values(settings__max_alert_bytes=limit)
        release.install(chart=earlier.chart, **values)
        assert release.image() == f"{REPOSITORY}:{earlier.version}"
        assert "stampede-stampede" in topics()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(simulate, release, 56, 500, 20)
            until(lambda: refused() > 5, 180, 2)
            present = dict.fromkeys(earlier.values())  # none is set any more
            release.install(**present, settings__max_alert_bytes=16 << 20)
            sending.result()
        release.wait_until_stored(seconds=400)
    assert release.image() == now
    assert before.isdisjoint(pod["metadata"]["name"] for pod in release.pods("read"))
    assert topics() == named == ["stampede-stampede-stampede-stampede"]
    release.stampede("deadletters", "replay", "--all", check=False, seconds=300)
    assert_all_of_it_is_stored(release, 56, 500)
    release.wait_until_stored("--site", "replica", seconds=400)
