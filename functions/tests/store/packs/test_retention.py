"""Each kind of pack has its number of days."""

import pytest

from stampede.config.settings import Settings
from stampede.runtime.clock import now_mjd
from stampede.store.packs.retention import Retention


@pytest.mark.parametrize("prefix", ["packs", "thumbnails", "packets"])
def test_packs_of_packets_have_days_of_their_own(prefix: str) -> None:
    packets = prefix == "packets"
    old, young = (f"{prefix}/{int(now_mjd()) - days}/{'0' * 32}.parquet" for days in (11, 9))
    for settings, expected in (
        (Settings(), False),
        (Settings(packet_days=10), packets),
        (Settings(cutout_days=10), not packets),
    ):
        retention = Retention.of(settings)
        assert retention.expired(old) is expected
        assert not retention.expired(young)
        assert not retention.expired("tables/packets/0000-x.parquet")
