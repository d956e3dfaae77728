"""Pages that are made from the code are as the code is."""

import re
import runpy
import tomllib
from pathlib import Path

from tools.docs import packages

ROOT = Path(__file__).parents[2]


def test_the_columns_page_matches_the_schemas() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "columns.py"))
    assert (ROOT / "docs" / "columns.md").read_text() == tool["page"](), "run tools/columns.py"


def test_the_man_page_matches_the_commands() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "man.py"))
    assert (ROOT / "docs" / "man" / "stampede.1").read_text() == tool["page"](), "run tools/man.py"
    assert tool["escaped"](".a 'b' -c\\n") == "\\&.a 'b' \\-c\\en"


def test_the_man_page_is_installed_where_man_looks() -> None:
    files = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    assert files == {"share/man/man1": ["docs/man/stampede.1"]}


def test_the_page_of_the_packages_describes_every_public_name() -> None:
    page = packages.page()
    names = re.findall(r"^## `(.+)`$", page, re.MULTILINE)
    assert {"stampede", "stampede_simulator", "stampede_local", "stampede_bench"} <= set(names)
    assert set(names) == {
        ".".join(path.relative_to(packages.CODE).parts[:-1])
        for name in packages.PACKAGES
        for path in (packages.CODE / name).rglob("__init__.py")
    }
    assert not re.findall(r"^- `.+`: *$", page, re.MULTILINE), "names without a docstring"
