"""The store's keys are exchanged by the commands of the how-to while alerts arrive."""

import re
import shlex
from string import Template

import pytest

from e2e.commands import CommandResult, until
from e2e.on_cluster.load import under_load
from e2e.on_cluster.release import Release
from e2e.places import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PAGE = (ROOT / "docs" / "how-to" / "rotate-keys.md").read_text()
CREATE, SECRET, UPGRADE, WAIT, REMOVE = [
    line for line in re.findall(r"^ *\$ (.+)$", PAGE, re.MULTILINE) if "openssl" not in line
]


class Page:
    """Runs the page's commands, with the keys in place of its variables."""

    def __init__(self, release: Release, **keys: str) -> None:
        self._release, self._keys = release, keys

    def run(self, line: str) -> CommandResult:
        program, *words = shlex.split(Template(line).substitute(self._keys))
        cluster = self._release.cluster
        if program == "radosgw-admin":
            return cluster.radosgw_admin(*words)
        return {"helm": cluster.helm, "kubectl": cluster.kubectl}[program](*words, seconds=400)


def test_the_keys_of_the_store_are_exchanged(release: Release) -> None:
    keys = release.secret("ceph")
    old_access, old_secret = keys["access-key"], keys["secret-key"]
    page = Page(release, NEW_ACCESS="A" * 20, NEW_SECRET="s" * 40, OLD_ACCESS=old_access)
    back = Page(release, NEW_ACCESS=old_access, NEW_SECRET=old_secret, OLD_ACCESS="A" * 20)
    wait, _, pattern = WAIT.partition(" | grep -w ")
    old_name = re.compile(shlex.split(pattern)[0], re.MULTILINE)
    with under_load(release, range(90, 98)):
        try:
            for line in (CREATE, SECRET, UPGRADE):
                page.run(line)
            release.wait_until_ready()
            until(lambda: not old_name.search(page.run(wait).output), 400, 2)
            page.run(REMOVE)
            release.wait_until_stored()
        finally:
            back.run(CREATE)
            release.install()
    until(lambda: "name: ceph-2" not in page.run(wait).output, 400, 2)
    back.run(REMOVE)
    release.kubectl("delete", "secret", "ceph-2")
