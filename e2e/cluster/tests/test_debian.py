"""Debian packages."""

import os

import pytest

from e2e.cluster import Failed
from e2e.cluster.built import debian


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Failed, match=r"sudo apt-get install .* its-package"):
        debian.install_packages({"no-such-program": "its-package"})
