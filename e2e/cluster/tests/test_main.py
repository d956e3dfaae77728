"""The command line."""

import subprocess
import sys

from e2e.cluster.places import ROOT


def test_help_lists_all_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "e2e.cluster", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0
    for command in ("up", "down", "status", "build", "load", "kubeconfig"):
        assert f"\n    {command}" in done.stdout
    wrong = subprocess.run(
        [sys.executable, "-m", "e2e.cluster", "sideways"], cwd=ROOT, capture_output=True
    )
    assert wrong.returncode == 2
