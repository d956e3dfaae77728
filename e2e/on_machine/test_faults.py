"""A short campaign of faults on the real system with both sites; `make faults` runs a long one."""

import os
from pathlib import Path

import pytest

from e2e.faults.campaign import Plan, campaign

FAULTS = 25


# TODO: run it always, once it was seen to pass on a machine with nothing else to do.
@pytest.mark.skipif("STAMPEDE_E2E_FAULTS" not in os.environ, reason="set STAMPEDE_E2E_FAULTS=1")
@pytest.mark.integration
@pytest.mark.timeout(2400)
def test_nothing_is_wrong_after_faults(tmp_path: Path) -> None:
    done = campaign(Plan(seed=7, faults=FAULTS, alerts=1000, seconds=2.0), tmp_path)
    assert sum(count for name, count in done.items() if ":" not in name) >= FAULTS
