"""Functions get S3 users of their own by the commands of the how-to, and work with them."""

import re
import shlex

import pytest
import yaml

from e2e.commands import until
from e2e.on_cluster.load import assert_it_is_read, lacking_thumbnails, simulate
from e2e.on_cluster.release import Release
from e2e.places import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PAGE = (ROOT / "docs" / "how-to" / "users.md").read_text()
ALLOW, MAKE, FORBID = re.findall(r"^ *\$ (.+)$", PAGE, re.MULTILINE)
SECRETS = yaml.safe_load(re.search(r"```yaml\n(.+?)```", PAGE, re.DOTALL)[1])["store"]["secrets"]
SEED, COUNT = 97, 60
# Try what a function taken over might try; print what the store says.
TRY = """
from stampede.errors import StampedeError
from stampede.config.settings import Settings
from stampede.store.open import open_objects
objects = open_objects(Settings())
key = next(iter(objects.list("tables/detections/"))).key
for attempt in (lambda: objects.delete(key), lambda: objects.put("packs/1", b"x")):
    try:
        attempt()
        print("done")
    except StampedeError as error:
        print(type(error).__name__)
"""


def radosgw(release: Release, line: str) -> None:
    """Run a command of the page in the store's pod."""
    program, *words = shlex.split(line)
    assert program == "radosgw-admin"
    release.cluster.radosgw_admin(*words)


def make_users(release: Release) -> None:
    """The page's pipe: `stampede users` in the toolbox, its Secrets to kubectl."""
    first, second = (shlex.split(part) for part in MAKE.split(" | "))
    assert first[0] == second[0] == "kubectl"
    made = release.cluster.kubectl(*first[1:])
    release.cluster.kubectl(*second[1:], stdin=made.output)


def test_functions_work_with_users_of_their_own(release: Release) -> None:
    radosgw(release, ALLOW)
    make_users(release)
    radosgw(release, FORBID)
    given = {f"store.secrets.{function}": name for function, name in SECRETS.items()}
    try:
        release.install(**given)
        simulate(release, SEED, COUNT)
        release.wait_until_stored()
        until(lambda: not lacking_thumbnails(release), 180, 3)
        assert_it_is_read(release, SEED, COUNT)
        release.wait_until_stored("--site", "replica")
        (reader, *_) = release.pods("read")
        place = ("exec", reader["metadata"]["name"], "--container", "read")
        tried = release.kubectl(*place, "--", "python3", "-c", TRY).output
        assert tried.split() == ["StoreRefused", "StoreRefused"]
    finally:
        release.install(**dict.fromkeys(given))
