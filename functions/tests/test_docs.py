"""Checks of the documentation that need no running program."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("charts", "docs", "e2e", "eventing", "functions", "manifests")


def test_the_columns_page_matches_the_schemas() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "columns.py"))
    assert (ROOT / "docs" / "columns.md").read_text() == tool["page"](), "run tools/columns.py"


def test_links_between_pages_work() -> None:
    for page in [
        ROOT / "README.md",
        *(page for room in FOLDERS for page in ROOT.glob(f"{room}/**/*.md")),
    ]:
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
