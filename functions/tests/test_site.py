"""The documentation as a site: what it consists of, and that `make docs` makes it."""

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tools.docs import client, commands, http, settings
from tools.docs.markdown import rewritten
from tools.docs.site import GENERATED, all_pages, files, navigation, place_of

from stampede import __version__
from stampede.cli.settings import variable_of
from stampede.config.settings import Settings
from stampede.read.openapi import describe

ROOT = Path(__file__).parents[2]
PLACES = {
    "docs/store.md": "store.md",
    "docs/how-to/close-read.md": "how-to/close-read.md",
    "x/README.md": "ref/x.md",
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return all_pages()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](../store.md#rows)", "[a](../store.md#rows)"),
        ("[a](../../x)", "[a](../ref/x.md)"),
        ("[a](../../x/README.md)", "[a](../ref/x.md)"),
        ("[`code`](../../functions/stampede/app.py)", "`code`"),
        ("[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
        ("[a](#here)", "[a](#here)"),
        ("Look:\n- a\n- b\n", "Look:\n\n- a\n- b\n"),
        ("- a\n  and more\n- b\n", "- a\n  and more\n- b\n"),
        ("- a\n- b\n", "- a\n- b\n"),
        ("```yaml\n[a](../../x)\n```", "```yaml\n[a](../../x)\n```"),
        ("```\n[a](../../x)\n```\n", "``` { .text .no-copy }\n[a](../../x)\n```\n"),
        ("1. a\n   b\n\n   c\n2. d\n\n   e\n\nf", "1. a\n    b\n\n    c\n2. d\n\n    e\n\nf"),
    ],
)
def test_a_page_is_rewritten_for_the_site(text: str, expected: str) -> None:
    assert rewritten(text, "docs/how-to/close-read.md", "how-to/close-read.md", PLACES) == expected


BLOCK = re.compile(r"^ *```([^\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
CONSOLE = """1. Do:

   ```console
   $ a \\
       | b
   said
   $ c
   ```
"""


def test_a_console_is_parted_into_commands_and_output() -> None:
    parted = """1. Do:

    ```sh
    a \\
        | b
    ```

    ``` { .text .no-copy }
    said
    ```

    ```sh
    c
    ```
"""
    assert rewritten(CONSOLE, "docs/store.md", "store.md", PLACES) == parted


def test_no_button_of_the_site_copies_a_prompt(pages: dict[str, str]) -> None:
    for place, text in pages.items():
        assert "```console" not in text, place
        for fence, code in BLOCK.findall(text):
            assert "no-copy" in fence or not re.search(r"^ *\$ ", code, re.MULTILINE), place
            assert fence or place in GENERATED, place  # what has no language is output


def test_the_site_has_three_ways_in_and_its_footer_leads_to_help(pages: dict[str, str]) -> None:
    headings = re.findall("^## (.+)$", pages["index.md"], re.MULTILINE)
    assert [*headings] == ["You look at alerts", "You run it", "You extend it", "Help"]
    footer = (ROOT / "tools/docs/theme/partials/copyright.html").read_text()
    for place in re.findall(r"{{ '(.+?)\.html", footer):
        assert f"{place}.md" in pages


def test_every_command_setting_and_route_has_its_entry() -> None:
    shown = commands.page()
    assert all(f"\n## stampede {' '.join(words)}\n" in shown for words in commands.commands())
    shown = settings.page()
    assert all(f"| `{variable_of(name)}` |" in shown for name in Settings.model_fields)
    assert str(ROOT) not in shown
    routes = re.findall(r"^## ([A-Z]+) `(.+)`$", http.page(), re.MULTILINE)
    assert {path for _, path in routes} == set(describe()["paths"])


def test_every_page_is_in_the_navigation_once(pages: dict[str, str]) -> None:
    def leaves(entries: list) -> list[str]:
        found = []
        for entry in entries:
            (value,) = entry.values()
            found += [value] if isinstance(value, str) else leaves(value)
        return found

    assert sorted(leaves(navigation(pages))) == sorted(pages)


def test_every_page_of_docs_is_on_the_site(pages: dict[str, str]) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        assert place_of(str(path.relative_to(ROOT))) in pages


class Assets(HTMLParser):
    """What a browser loads for a page by itself, as opposed to what a reader may click."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio"):
            self.urls += filter(None, (values.get("src"), values.get("srcset")))
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.urls += filter(None, (values.get("href"),))


@pytest.mark.integration
def test_make_docs_makes_a_site_that_loads_nothing_from_elsewhere(pages: dict[str, str]) -> None:
    made = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert made.returncode == 0, made.stdout + made.stderr
    site = ROOT / "build" / "site"
    for place in pages:
        page = (site / place).with_suffix(".html")
        assets = Assets()
        assets.feed(page.read_text())
        assert f"Stampede {__version__}" in page.read_text()
        assert assets.urls
        for url in assets.urls:
            assert not re.match(r"[a-z]*:?//", url), f"{page}: {url}"
            assert (page.parent / url.partition("?")[0]).exists(), f"{page}: {url}"
    for page in site.rglob("*.html"):
        assert "```" not in page.read_text(), f"{page}: a block is not shown as one"
    for sheet in site.rglob("*.css"):
        loaded = re.findall(r"url\([\"']?([^)\"']+)", sheet.read_text())
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], sheet
    for file in files():
        assert (site / file.relative_to(ROOT / "docs")).exists()


def test_the_page_of_the_client_has_every_public_name_and_no_headings_of_docstrings() -> None:
    import stampede_client

    text = client.page()
    assert all(f"## `{name}`" in text for name in stampede_client.__all__)
    assert "### `Client.ledger() -> dict[str, Any]`" in text
    assert "- `ids`: diaSourceIds and candids" in text
    assert "\n---" not in text
