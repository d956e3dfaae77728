"""A pod of another namespace cannot send events to a function: it lacks the key."""

import pytest

from e2e.on_cluster.release import Release
from e2e.on_cluster.stranger import OFFSET, answer

pytestmark = pytest.mark.timeout(600)

# Print the offsets whose alerts the store's tables hold.
COVERAGE = """
from stampede.config.settings import Settings
from stampede.store.open import open_objects
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table
for spec in TABLES.values():
    table = Table(open_objects(Settings()), spec)
    table.refresh()
    print(table.coverage().to_json())
"""


def test_an_event_without_the_key_is_refused(release: Release) -> None:
    """With it the same pod is heard: what it sends is no alert, so nothing is stored."""
    key = release.secret(f"{release.name}-event-key")["event-key"]
    for function in ("cutouts", "lightcurves", "deadletters"):
        for header in ((), (f"Authorization: Bearer {key[::-1]}",), (f"ce-accesskey: {'0' * 40}",)):
            assert answer(release, function, *header) == "401", function
    for function in ("cutouts", "lightcurves"):
        assert answer(release, function, f"Authorization: Bearer {key}") == "400", function
    assert f"{OFFSET}" not in release.python(COVERAGE)
