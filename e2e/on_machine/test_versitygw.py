"""The whole system on an S3 server that is not Ceph: alerts from disk are stored and read."""

from pathlib import Path
from typing import Any

import pytest

from e2e.commands import RUN_SECONDS, run, until
from e2e.stampede_up import StampedeUp, stored_counts
from stampede.config.settings import Settings
from stampede.store.open import open_objects
from stampede_simulator.simulator import Simulator
from tests.conftest import gateway, gateway_bucket
from tests.support.store import stored_alerts

COUNT = 150
__all__ = ["gateway", "gateway_bucket"]  # fixtures
pytestmark = pytest.mark.timeout(900)


def test_up_stores_and_serves_alerts(gateway_bucket: Settings, tmp_path: Path) -> None:
    env: dict[str, Any] = {
        "STAMPEDE_ACCESS_KEY": gateway_bucket.access_key,
        "STAMPEDE_SECRET_KEY": gateway_bucket.secret_key.get_secret_value(),
    }
    folder, data = tmp_path / "night", tmp_path / "data"
    run("simulate", "--to", folder, "--alerts", COUNT, "--seed", 6).assert_succeeded()
    with StampedeUp(data, "--store", gateway_bucket.store, "--topics", "", **env) as up:
        done = run("ingest", folder, "--data", data, **env).assert_succeeded()
        assert stored_counts(done)["cutouts"] == (COUNT, COUNT, 0)
        simulator = Simulator(6)
        alerts = list(simulator.alerts(COUNT))
        stored = stored_alerts.stored_cutouts(up.url, [alert.alert_id for alert in alerts])
        assert not stored_alerts.differences(stored_alerts.cutouts_of(alerts), stored)
        assert stored_alerts.assert_light_curves(up.url, simulator) > 100
        # Nobody is notified, so `reconcile` asks for the thumbnails.
        objects = open_objects(gateway_bucket)
        packs = len([*objects.list("packs/")])
        assert packs > 0
        run("reconcile", "--all", "--data", data, STAMPEDE_GRACE_SECONDS="0", **env)
        until(lambda: len([*objects.list("thumbnails/")]) == packs, RUN_SECONDS)
        deep = run("audit", "--deep", "--data", data, **env).assert_succeeded()
        assert "everything reads as it was stored" in deep.output
        up.stop().assert_succeeded()
