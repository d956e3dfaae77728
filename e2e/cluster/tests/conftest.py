"""No test here reaches a cluster that is up: they are of the code, in a place of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from e2e.cluster import build, knative, machine, node, steps

_PLACES = {"CLUSTER": "", "RUN": "run", "LOGS": "log", "IMAGES": "images", "PROGRAMS": "bin"}
_PLACES |= {"PID": "run/pid", "KUBECONFIG": "run/kubeconfig", "_FOUND": "run/settings.json"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory in place of the cluster's, and hands off the machine."""
    for module in (build, knative, machine, node, steps):
        for name, where in _PLACES.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, tmp_path / where)
    (tmp_path / "run").mkdir()

    def refuse(function: str) -> Callable[..., NoReturn]:
        return lambda *_: pytest.fail(f"a test of the code called {function}")

    for function in ("link", "unlink", "remove_cgroups"):
        monkeypatch.setattr(machine, function, refuse(function))
    return tmp_path
