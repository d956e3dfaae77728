"""`CEPH=18.2 make e2e`: the Ceph that is asked for is the one that is tested."""

from typing import Any

import pytest

from e2e.cluster import Failed
from e2e.on_cluster import __main__ as on_cluster


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that build images, which are not run."""
    commands: list[list[str]] = []

    class Done:
        returncode = 0

    def run(command: list[Any]) -> Done:
        commands.append([str(word) for word in command[2:]])
        return Done()

    monkeypatch.setattr("subprocess.run", run)
    return commands


@pytest.mark.parametrize(("asked", "source"), [("", ""), ("18.2", "-18.2")])
def test_the_image_has_the_ceph_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, built: list[list[str]], asked: str, source: str
) -> None:
    monkeypatch.setenv("CEPH", asked)
    on_cluster.image("stampede-ceph")
    on_cluster.image("stampede-kafka")
    assert [words[1] for words in built] == [f"stampede-ceph{source}", "stampede-kafka"]
    tag = [f"dev.local/stampede-ceph:{on_cluster.__version__}"]
    assert built[0][3:] == (tag if source else [])


def test_an_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPH", "17.2")
    with pytest.raises(Failed, match=r"CEPH=17.2: it can be 18.2"):
        on_cluster.image("stampede-ceph")


def test_pods_with_another_ceph_are_not_tested() -> None:
    def kubectl(*arguments: object) -> str:
        return "ceph version 16.2.15 (618f440) pacific (stable)\n"

    on_cluster.require_ceph(kubectl, "16.2")
    with pytest.raises(Failed, match=r"runs Ceph 16.2.15, not 18.2: make e2e-down"):
        on_cluster.require_ceph(kubectl, "18.2")
