"""A page of the repository as MkDocs reads it: its links and its lists."""

import os
import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

# GitHub begins a list right after a line of text, MkDocs only after an empty line.
LIST = re.compile(r"^(?!\s*(?:[-|#>]|\d+\.) ?)(\S.*)\n(?=(?:- |1\. ))", re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:\\.|[^\[\]\\])*)\]\(([^)\s]+)\)")


def rewritten(text: str, source: str, place: str, places: Mapping[str, str]) -> str:
    """A page's text for the site. Links to what the site lacks become plain text.

    Parameters
    ----------
    source
        The page's path in the repository.
    place
        Its path on the site.
    places
        The place of every page and file of the site, by its path in the repository.
    """
    here = PurePosixPath(source).parent

    def link(found: re.Match[str]) -> str:
        image, label, target = found.groups()
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            return found[0]
        path, hash_sign, anchor = target.partition("#")
        wanted = os.path.normpath(here / path)
        to = places.get(wanted) or places.get(f"{wanted}/README.md")
        if to is None:
            return label
        relative = os.path.relpath(to, PurePosixPath(place).parent)
        return f"{image}[{label}]({relative}{hash_sign}{anchor})"

    linked = outside_of_code(text, lambda part: LIST.sub(r"\1\n\n", LINK.sub(link, part)))
    return folded_diagrams(linked)


def folded_diagrams(text: str) -> str:
    """A text whose Mermaid diagrams are folded: drawing them takes megabytes of JavaScript."""
    return re.sub(
        r"^```mermaid\n(.*?)^```$",
        lambda found: (
            '??? note "The diagram, as its source (Mermaid)"\n\n'
            + textwrap.indent(f"```text\n{found[1]}```", "    ")
        ),
        text,
        flags=re.DOTALL | re.MULTILINE,
    )


def outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """A text, changed where it is not a block of code."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else change(part) for part in parts)
