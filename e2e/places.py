"""Paths that the end-to-end tests use."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
REAL_ALERTS = ROOT.parent / "shared" / "data"
CHROMIUM = shutil.which("chromium")
