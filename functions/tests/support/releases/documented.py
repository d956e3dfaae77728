"""What docs/store.md says that there is: kinds of objects by their names, and format numbers."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[4] / "docs" / "store.md"
PLACES = {
    **{"digest": "[0-9a-f]{32}", "number": r"\d{10}", "night": r"\d+", "first": r"\d+"},
    **{"slice": "(?:all|[01]+)", "level": r"\d+", "part": r"\d+", "parts": r"\d+"},
    **{"survey": "[a-z]+", "schema": "[0-9a-f]+", "table": "[a-z]+"},
    **{"topic": "[^/]+", "name": "[^/]+", "site": "[a-z]+", "steps": "[a-z-]+"},
    **{
        "revision": r"\d{4}",
        "job": "[0-9a-f]{10}-[0-9a-f]{32}",
        "size": r"\d{1,9}",
        "count": r"\d{3}",
    },
}
"""What stands for a word in angle brackets."""
SINCE_THE_LAST = (
    *("proofs/", "proving/", "deadletters/accepted/", "tap/", "tables/moving/"),
    "probes/timed/",
)
"""Names that no release writes yet. The bucket of the next one has them; then this is emptied."""
OF_PROGRAMMES = ("packs/", "thumbnails/", "packets/", "alerts/")
"""Names that may end in observing programmes."""


def kinds() -> dict[str, re.Pattern[str]]:
    """The kinds of objects as they are drawn, one a line, and a pattern of the keys of each."""
    drawn = re.search(r"```\n(packs.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert drawn
    names = [line.split()[0] for line in drawn[1].splitlines()]
    return {each: _pattern_of(each) for name in names for each in _alternatives(name)}


def formats() -> set[int]:
    """The numbers in the table of formats."""
    section = DOCUMENT.read_text().partition("\n## Format\n")[2].partition("\n## ")[0]
    return {int(number) for number in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}


def _alternatives(name: str) -> list[str]:
    """The names that one with a list in braces stands for, or with a part in brackets."""
    if found := re.fullmatch(r"(.*)\{(.*)\}(.*)", name):
        return [f"{found[1]}{each}{found[3]}" for each in found[2].split(",")]
    if found := re.fullmatch(r"(.*)\[(.*)\](.*)", name):
        return [f"{found[1]}{found[3]}", f"{found[1]}{found[2]}{found[3]}"]
    return [name]


def _pattern_of(name: str) -> re.Pattern[str]:
    text = re.sub(r"<(\w+)>", lambda found: PLACES[found[1]], name.replace(".", r"\."))
    if name.startswith(OF_PROGRAMMES):
        text = text.replace(r"\.parquet", r"(?:-programid\d+(?:\.\d+)*)?\.parquet")
    return re.compile(text)
