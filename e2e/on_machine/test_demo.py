"""The README's commands, by the Makefile's own targets."""

import sys
from pathlib import Path

import pytest

from e2e.user import REAL, run
from stampede_local.ports import free_port

pytestmark = pytest.mark.timeout(900)


def demo(tmp_path: Path, *variables: str) -> str:
    options = f"--data {tmp_path}/demo --port {free_port()}"
    done = run("make", "demo", f"VENV={sys.prefix}", f"OPTIONS={options}", *variables, seconds=800)
    done.assert_done()
    assert "nothing is missing" in done.said
    assert "every cutout is byte for byte what was sent" in " ".join(done.said.split())
    return done.said


def test_make_demo(tmp_path: Path) -> None:
    assert "2,000 alerts are in Kafka" in demo(tmp_path)


@pytest.mark.skipif(not REAL.exists(), reason="needs the real alerts of ../shared/data")
def test_make_demo_with_real_alerts(tmp_path: Path) -> None:
    assert "151 alerts are in Kafka" in demo(tmp_path, f"ALERTS={REAL}")


@pytest.mark.skipif(REAL.exists(), reason="the real alerts do instead")
def test_make_demo_with_alerts_from_disk(tmp_path: Path) -> None:
    folder = tmp_path / "alerts"
    run("simulate", "--to", folder, "--alerts", "150").assert_done()
    assert "150 alerts are in Kafka" in demo(tmp_path, f"ALERTS={folder}")


def test_make_help_names_every_target() -> None:
    said = run("make", "help").said
    assert all(f"make {target}" in said for target in ("demo", "check", "test", "e2e", "bench"))
