"""Pages that are made from the code are as the code is."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_columns_page_matches_the_schemas() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "columns.py"))
    assert (ROOT / "docs" / "columns.md").read_text() == tool["page"](), "run tools/columns.py"


def test_the_reference_matches_the_code() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "reference.py"))
    assert (ROOT / "docs" / "reference.md").read_text() == tool["page"](), "run tools/reference.py"
