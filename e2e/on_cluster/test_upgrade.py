"""No read fails and no alert is lost while the chart is upgraded."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.commands import until
from e2e.on_cluster.load import (
    assert_all_of_it_is_stored,
    reads,
    simulate,
    simulated_alerts,
)
from e2e.on_cluster.release import Release
from e2e.places import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

EARLIER = ROOT / "charts" / "tests" / "earlier" / "stampede-0.1.0.tgz"
LIMIT = "the limit is"  # part of the reason of a dead letter that is too large
# Print the names of the store's topics, without those that RGW makes for each notification.
TOPICS = """
from stampede.config.settings import Settings
from stampede.store.ceph.bucket_notifications import NotifyingBucket
from stampede.store.open import first_site
names = (topic.name for topic in NotifyingBucket(first_site(Settings())).topics())
print(*(name for name in names if "_" not in name))
"""


def test_to_an_earlier_chart_and_back_with_poison_alerts(release: Release) -> None:
    """N to N-1 to N under load; what N-1 refuses by a size limit, N replays.

    Notifications arrive after each change. The earlier chart runs the present image: only charts
    are kept, not images.
    """
    _, alerts = simulated_alerts(56, 500)
    limit = sorted(len(alert.body) for alert in alerts)[-50]  # 50 alerts are at least as large

    def refused() -> int:
        line = ("stampede", "deadletters", "list", "cutouts", "--reason", LIMIT, "--json")
        return len(release.in_toolbox(*line).output.splitlines())

    def topics() -> list[str]:
        return sorted(release.python(TOPICS).split())

    named = topics()
    with reads(release, 55):
        before = {pod["metadata"]["name"] for pod in release.pods("read")}
        release.install(chart=EARLIER, settings__max_alert_bytes=limit)
        assert "stampede-stampede" in topics()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(simulate, release, 56, 500, 20)
            until(lambda: refused() > 5, 180, 2)
            release.install(settings__max_alert_bytes=16 << 20)
            sending.result()
        release.wait_until_stored(seconds=400)
    assert before.isdisjoint(pod["metadata"]["name"] for pod in release.pods("read"))
    assert topics() == named == ["stampede-stampede-stampede-stampede"]
    release.stampede("deadletters", "replay", "--all", check=False, seconds=300)
    assert_all_of_it_is_stored(release, 56, 500)
    release.wait_until_stored("--site", "replica", seconds=400)
