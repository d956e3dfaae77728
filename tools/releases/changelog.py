"""What CHANGELOG.md says of a version: the notes of a release."""

import re
from pathlib import Path

UPGRADE = "### Upgrade"


def release_notes(root: Path, version: str) -> str:
    """The section of a version.

    Raises `ValueError` if it is not there, has no date, says nothing of upgrades, or if changes
    were not gathered into it.
    """
    text = (root / "CHANGELOG.md").read_text()
    found = re.search(
        rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n(.*?)(?=^## |\Z)", text, re.M | re.S
    )
    if not found:
        raise ValueError(f"CHANGELOG.md has no section `## {version} (DATE)`")
    notes = found[1].strip()
    upgrade = re.search(rf"^{UPGRADE}\n+((?:(?!^#).*\n?)+)", notes, re.M)
    if not upgrade or not upgrade[1].strip():
        raise ValueError(
            f"CHANGELOG.md has no notes `{UPGRADE}` for {version}: say what to do before, and what "
            "may be undone, or that there is nothing to do"
        )
    left = sorted(path.name for path in (root / "changes.d").glob("*.md"))
    left.remove("README.md")
    if left:
        raise ValueError(f"changes.d has changes that are not in CHANGELOG.md: {', '.join(left)}")
    return f"{notes}\n"
