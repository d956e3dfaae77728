"""Tests, and processes that they start, do not see the settings of whoever runs them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.surroundings import OTHERS

ROOT = Path(__file__).parents[3]
USERS = {
    **dict.fromkeys(OTHERS, "7"),
    "PYTEST_ADDOPTS": "--maxfail=7",
    "STAMPEDE_STORE": "file:///a/store/of/the/user",
    "STAMPEDE_IN_FLIGHT": "7",
    "XDG_DATA_HOME": "/a/folder/of/the/user",
}


def test_nothing_of_the_user_is_here() -> None:
    """It says something when the test below runs it."""
    assert [name for name, value in USERS.items() if os.environ.get(name) == value] == []


def test_settings_of_the_user_are_not_inherited() -> None:
    for file in (Path(__file__), ROOT / "client" / "tests" / "test_surroundings.py"):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                f"{file}::test_nothing_of_the_user_is_here",
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | USERS,
        )
        assert "1 passed" in done.stdout, done.stdout + done.stderr
