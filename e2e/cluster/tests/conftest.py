"""These tests use an empty directory in place of a running cluster's."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from e2e.cluster import kind, knative, kubectl, steps
from e2e.cluster.built import binaries, debian, docker, go_modules, images, kind_image, machine

_MODULES = (
    *(binaries, debian, docker, go_modules, images, kind, kind_image, knative, kubectl),
    *(machine, steps),
)
_PLACES = {"CLUSTER": "", "LOGS": "log", "IMAGES": "images", "PROGRAMS": "bin"}
_PLACES |= {
    "DOCKER": "docker",
    "SOCKET": "docker.sock",
    "PID": "docker.pid",
    "_SAVED_SETTINGS": "settings.json",
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory in place of the cluster's; changes to the machine fail the test."""
    for module in _MODULES:
        for name, where in _PLACES.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, tmp_path / where)

    def refuse(function: str) -> Callable[..., NoReturn]:
        return lambda *_: pytest.fail(f"a unit test called {function}")

    for function in ("link", "unlink", "remove_cgroups"):
        monkeypatch.setattr(machine, function, refuse(function))
    return tmp_path
