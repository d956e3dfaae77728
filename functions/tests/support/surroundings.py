"""The environment that tests, and the processes that they start, take from whoever runs them.

Settings in it, or a `stampede up` of the user, would change results, and a test could write there.
"""

import shutil
import tempfile

import pytest

from stampede.config.settings import Settings

OTHERS = (
    *("PYTEST_ADDOPTS", "STAMPEDE_DATA", "STAMPEDE_TOKEN"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "K_SINK", "K_CE_OVERRIDES"),
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"),
)
"""Variables that change what programs do or print, beside the settings."""


def register(config: pytest.Config) -> None:
    """Remove settings from the environment until the tests end: as if nothing ran here."""
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    for name in (*OTHERS, *(f"STAMPEDE_{field.upper()}" for field in Settings.model_fields)):
        patch.delenv(name, raising=False)
    folder = tempfile.mkdtemp(prefix="stampede-tests-")  # where `stampede up` would keep its data
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    patch.setenv("XDG_DATA_HOME", folder)
