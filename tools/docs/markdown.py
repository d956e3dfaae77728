"""A page of the repository as MkDocs reads it: its links and its lists."""

import os
import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

# GitHub begins a list right after a line of text, MkDocs only after an empty line.
LIST = re.compile(r"^(?!\s*(?:[-|#>]|\d+\.) ?)(\S.*)\n(?=(?:- |1\. ))", re.MULTILINE)
CONSOLE = re.compile(r"^( *)```console\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
NUMBERED = re.compile(r"\d+\. ")
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
    parted = CONSOLE.sub(commands_and_output, linked)
    return folded_diagrams(deeper_items(outputs_alone(parted)))


def deeper_items(text: str) -> str:
    """A text in which what belongs to a numbered item is indented by four, as MkDocs wants it."""
    lines, in_item = list[str](), False
    for line in text.split("\n"):
        in_item = bool(NUMBERED.match(line)) or (in_item and (not line or line.startswith("   ")))
        lines.append(f" {line}" if in_item and line.startswith("   ") else line)
    return "\n".join(lines)


def outputs_alone(text: str) -> str:
    """A text whose blocks of no language, the output of commands, have no button that copies."""

    def block(found: re.Match[str]) -> str:
        indent, language, code = found.groups()
        if language not in ("", "text"):
            return found[0]
        return f"{indent}``` {{ .text .no-copy }}\n{code}{indent}```"

    return re.sub(r"^( *)```([^\n]*)\n(.*?)^ *```$", block, text, flags=re.DOTALL | re.MULTILINE)


def commands_and_output(console: re.Match[str]) -> str:
    """The blocks of a match of `CONSOLE`: commands without their prompts, output that none copies.

    So the site's button copies what a shell takes.
    """
    indent, blocks, goes_on = console[1], list[tuple[bool, list[str]]](), False
    for line in console[2].splitlines():
        text = line.removeprefix(indent)
        is_command = goes_on or text.startswith("$ ")
        goes_on = is_command and text.endswith("\\")
        if not blocks or blocks[-1][0] != is_command:
            blocks.append((is_command, []))
        blocks[-1][1].append(text.removeprefix("$ ") if is_command else text)
    parts = []
    for is_command, lines in blocks:
        fence = "```sh" if is_command else "``` { .text .no-copy }"
        parts.append("\n".join([fence, *lines, "```"]))
    return textwrap.indent("\n\n".join(parts), indent)


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
