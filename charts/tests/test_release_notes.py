"""`tools/release` makes nothing for a registry without the notes of the version."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rendering import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from releases.changelog import release_notes

NOTES = """\
# Changelog

## 1.2.0 (2027-01-02)

Words.

### Upgrade

Nothing to do.

### Added

- **Much.**

## 1.1.0 (2027-01-01)

### Upgrade

- Run `stampede setup` first.
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "CHANGELOG.md").write_text(NOTES)
    (tmp_path / "changes.d").mkdir()
    (tmp_path / "changes.d" / "README.md").touch()
    return tmp_path


def test_the_notes_are_the_section_of_the_version(project: Path) -> None:
    assert release_notes(project, "1.2.0").startswith("Words.\n\n### Upgrade\n\nNothing to do.")
    assert release_notes(project, "1.2.0").endswith("- **Much.**\n")
    assert release_notes(project, "1.1.0") == "### Upgrade\n\n- Run `stampede setup` first.\n"


@pytest.mark.parametrize(
    ("version", "old", "new", "message"),
    [
        ("1.3.0", "", "", "has no section `## 1.3.0 (DATE)`"),
        ("1.2.0", "(2027-01-02)", "(unreleased)", "has no section `## 1.2.0 (DATE)`"),
        ("1.2.0", "### Upgrade\n\nNothing to do.\n", "", "has no notes `### Upgrade` for 1.2.0"),
        ("1.2.0", "Nothing to do.\n", "", "has no notes `### Upgrade` for 1.2.0"),
    ],
)
def test_a_version_without_notes_is_refused(
    project: Path, version: str, old: str, new: str, message: str
) -> None:
    (project / "CHANGELOG.md").write_text(NOTES.replace(old, new, 1) if old else NOTES)
    with pytest.raises(ValueError, match=re.escape(message)):
        release_notes(project, version)


def test_changes_that_were_not_gathered_are_named(project: Path) -> None:
    (project / "changes.d" / "faster.changed.md").write_text("Faster.")
    with pytest.raises(ValueError, match=r"not in CHANGELOG\.md: faster\.changed\.md"):
        release_notes(project, "1.2.0")


def test_the_present_version_has_notes_of_upgrades() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    section = (ROOT / "CHANGELOG.md").read_text().partition(f"\n## {version} ")[2]
    assert "\n### Upgrade\n" in section.partition("\n## ")[0]


@pytest.mark.skipif(
    not any(path.name != "README.md" for path in (ROOT / "changes.d").iterdir()),
    reason="this commit is a release: everything is gathered",
)
def test_tools_release_makes_nothing_before_changes_are_gathered(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    line = [sys.executable, str(ROOT / "tools" / "release"), "--registry", "registry.test/sky"]
    options = ["--without-image", "--out", str(tmp_path)]
    done = subprocess.run([*line, *options], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("tools/release: changes.d has changes that are not in")
    assert (tmp_path / "kept").exists()
