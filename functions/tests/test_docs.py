"""What the documentation says that can be checked without running anything."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("charts", "docs", "e2e", "eventing", "functions", "manifests")


def test_columns_page_is_what_the_model_says() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "columns.py"))
    assert (ROOT / "docs" / "columns.md").read_text() == tool["page"](), "run tools/columns.py"


def test_links_between_pages_lead_somewhere() -> None:
    for page in [
        ROOT / "README.md",
        *(page for room in ROOMS for page in ROOT.glob(f"{room}/**/*.md")),
    ]:
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
