"""What the site consists of, and where: pages of the repository, and pages made from the code."""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from tools.docs import client, commands, http, packages, settings
from tools.docs.markdown import rewritten

from stampede import __version__

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIG = Path(__file__).with_name("mkdocs.yml")
THEME = Path(__file__).with_name("theme")
ELSEWHERE = {
    "README.md": "project/readme.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "eventing/README.md": "reference/events.md",
    "charts/stampede/README.md": "reference/chart.md",
    "manifests/README.md": "how-to/cluster.md",
    "e2e/README.md": "project/e2e.md",
    "client/README.md": "reference/client.md",
}
"""Pages outside of docs/, and their places on the site."""
GENERATED: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands.page,
    "reference/settings.md": settings.page,
    "reference/http.md": http.page,
    "reference/client-api.md": client.page,
    "reference/packages.md": packages.page,
}
REFERENCE = (
    "reference/commands.md",
    "reference/settings.md",
    "routes.md",
    "reference/http.md",
    "reference/client.md",
    "reference/client-api.md",
    "columns.md",
    "store.md",
    "tested-with.md",
    "reference/events.md",
    "reference/chart.md",
    "reference/packages.md",
)
EXPLANATION = ("architecture.md", "explanation/*", "scale.md", "benchmarks.md")
PROJECT = "project/*"
TITLES = {
    "index.md": "Home",
    "project/readme.md": "README",
    "runbooks/index.md": "All alert rules",
    "adr/index.md": "All records",
    "measurements/index.md": "About these pages",
}
"""Titles in the navigation of pages whose headings say too little there."""


def write_site(folder: Path) -> None:
    """Write the pages and MkDocs' configuration into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = all_pages()
    for name, text in pages.items():
        path = folder / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for file in files():
        path = folder / "pages" / file.relative_to(DOCS)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, path)
    shutil.copytree(THEME, folder / "theme")
    extra = {"generator": False, "version": __version__}
    added = yaml.safe_dump(
        {"extra": extra, "nav": navigation(pages)}, sort_keys=False, allow_unicode=True
    )
    (folder / "mkdocs.yml").write_text(CONFIG.read_text() + added)


def all_pages() -> dict[str, str]:
    """The text of every page, by its place on the site."""
    sources = {str(path.relative_to(ROOT)): path for path in sorted(DOCS.rglob("*.md"))}
    sources |= {name: ROOT / name for name in ELSEWHERE if (ROOT / name).exists()}
    places = {name: place_of(name) for name in sources}
    places |= {str(file.relative_to(ROOT)): str(file.relative_to(DOCS)) for file in files()}
    places |= {f"docs/{name}": name for name in GENERATED}
    pages = {
        places[name]: rewritten(path.read_text(), name, places[name], places)
        for name, path in sources.items()
    }
    pages |= {name: make() for name, make in GENERATED.items()}
    return pages


def files() -> list[Path]:
    """The files that pages show or link to: images, tables."""
    return sorted(
        path for path in DOCS.rglob("*") if path.is_file() and path.suffix not in (".md", ".py")
    )


def place_of(source: str) -> str:
    """The place on the site of a page of the repository."""
    place = ELSEWHERE.get(source) or source.removeprefix("docs/")
    return re.sub(r"README\.md$", "index.md", place)


def title_of(text: str) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    assert found, text[:80]
    return found[1]


def order(place: str) -> tuple[bool, str]:
    """Pages in the order of their names, the index of a folder first."""
    return not place.endswith("index.md"), place


def navigation(pages: Mapping[str, str]) -> list[Any]:
    """MkDocs' `nav`: tutorial, how-tos, reference, explanation, the project."""

    def entries(*patterns: str) -> list[Any]:
        named: list[Any] = []
        for pattern in patterns:
            folder, star, _ = pattern.partition("*")
            found = [page for page in sorted(pages, key=order) if star and page.startswith(folder)]
            for page in found or [pattern]:
                if page in pages:
                    named.append({TITLES.get(page) or title_of(pages[page]): page})
        return named

    return [
        *entries("index.md"),
        {"Tutorial": entries("tutorial/*")},
        {
            "How to": [
                *entries("cluster.md", "operate.md", "how-to/*"),
                {"Runbooks": entries("runbooks/*")},
            ]
        },
        {"Reference": entries(*REFERENCE)},
        {
            "Explanation": [
                *entries(*EXPLANATION),
                {"Decision records": entries("adr/*")},
                {"Measurements": entries("measurements/*")},
            ]
        },
        {"Project": entries(PROJECT)},
    ]
