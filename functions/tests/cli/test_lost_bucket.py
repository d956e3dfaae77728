"""A bucket that is lost is restored from the second site, by the commands of the how-to."""

import re
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.runtime.clock import now_mjd
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from tests.support.store.two_sites import environment, put_all, second_ceph, sites

__all__ = ["second_ceph", "sites"]  # fixtures
pytestmark = pytest.mark.integration
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "restore-a-bucket.md"
COMMANDS = re.findall(r"^\$ stampede (.+)$", PAGE.read_text(), re.MULTILINE)
TODAY = int(now_mjd())


def contents(objects: Objects) -> dict[str, bytes]:
    """All objects but those that describe their own site."""
    own = ("checkpoints/", "state/", "proving/", "reconcile/")
    keys = [info.key for info in objects.list("") if not info.key.startswith(own)]
    return {key: bytes(objects.get(key)) for key in keys}


def test_a_lost_bucket_comes_back_byte_for_byte(run, sites: Settings) -> None:
    env = {f"STAMPEDE_{name}": value for name, value in environment(sites).items()}
    first, second = open_objects(sites), open_replica(sites)
    for number in range(12):
        put_all(first, range(10 * number, 10 * number + 10), TODAY - number)
    assert run("reconcile", "--all", **env).status == 0  # derives positions, copies all
    stored = contents(first)
    assert len(stored) >= 48
    for info in list(first.list("")):
        first.delete(info.key)

    assert run("reconcile", "--all", "--dry-run", **env).status == 1
    assert contents(second) == stored
    assert len(COMMANDS) == 4
    lost = {key: len(data) for key, data in stored.items()}
    for command in COMMANDS:
        done = run(*command.split(), **env)
        if command == "reconcile --all":
            (copied,) = re.findall(
                r"^copied (.+) objects, (.+) bytes, in .* s: .* MB/s$", done.out, re.M
            )
            assert [int(number.replace(",", "")) for number in copied] == [
                len(lost),
                sum(lost.values()),
            ]
        assert done.status == 0, f"{command}\n{done.out}"
        assert contents(second) == stored  # nothing there was deleted for what the first lacked
    assert contents(first) == stored
    assert "nothing is missing" in done.out
