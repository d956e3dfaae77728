"""The README's `make` commands."""

import shutil
import sys
from pathlib import Path

import pytest

from e2e.commands import run
from e2e.places import REAL_ALERTS
from stampede_local.ports import free_port

# The folders of real alerts that Stampede knows; another has alerts that it must refuse.
FOLDERS = ("lsst", "ztf", "ztf-one-object", "ztf-forced")
pytestmark = pytest.mark.timeout(900)


def demo(tmp_path: Path, *variables: str) -> str:
    options = f"--data {tmp_path}/demo --port {free_port()}"
    done = run("make", "demo", f"VENV={sys.prefix}", f"OPTIONS={options}", *variables, seconds=800)
    done.assert_succeeded()
    assert "nothing is missing" in done.output
    assert "every cutout is byte for byte what was sent" in " ".join(done.output.split())
    return done.output


def test_make_demo(tmp_path: Path) -> None:
    assert "2,000 alerts are in Kafka" in demo(tmp_path)


@pytest.mark.skipif(not REAL_ALERTS.exists(), reason="needs the real alerts of ../shared/data")
def test_make_demo_with_real_alerts(tmp_path: Path) -> None:
    for name in FOLDERS:
        shutil.copytree(REAL_ALERTS / name, tmp_path / "alerts" / name)
    assert "151 alerts are in Kafka" in demo(tmp_path, f"ALERTS={tmp_path}/alerts")


@pytest.mark.skipif(REAL_ALERTS.exists(), reason="the test with real alerts covers this")
def test_make_demo_with_alerts_from_disk(tmp_path: Path) -> None:
    folder = tmp_path / "alerts"
    run("simulate", "--to", folder, "--alerts", "150").assert_succeeded()
    assert "150 alerts are in Kafka" in demo(tmp_path, f"ALERTS={folder}")


def test_make_help_names_every_target() -> None:
    output = run("make", "help").output
    assert all(f"make {target}" in output for target in ("demo", "check", "test", "e2e", "bench"))
