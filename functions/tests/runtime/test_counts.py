"""No message says "1 alerts": a count and its noun are written by `counted`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.runtime.counts import are, counted

ROOT = Path(__file__).parents[2]
SHOWN = (
    *("stampede/cli", "stampede/comparison", "stampede/doctor", "stampede/proofs"),
    *("stampede/read/pages", "stampede/read/plots", "stampede_local", "stampede_simulator"),
)
"""Folders whose texts people read as sentences."""
NOUNS = (
    *("alerts", "cutouts", "detections", "entries", "faults", "files", "images", "letters"),
    *("limits", "messages", "nights", "objects", "offsets", "packs", "partitions", "parts"),
    *("pixels", "points", "processes", "proofs", "rows", "runs", "sources"),
)
COUNT = re.compile(rf" (?:(?:dead|more|new|other) )?(?:{'|'.join(NOUNS)})\b")
NOT_ONE = re.compile(r"\b(?:of|than|most|all) $")
"""Before a number that is a limit, or the whole of which a part is named: "2 of 30 alerts"."""


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "alert", "1 alert"),
        (0, "alert", "0 alerts"),
        (1234, "dead letter", "1,234 dead letters"),
        (2, "entry", "2 entries"),
        (2, "day", "2 days"),
        (["a", "b"], "process", "2 processes"),
        ({}, "match", "0 matches"),
    ],
)
def test_a_count_agrees_with_its_noun(count, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_the_verb_agrees() -> None:
    assert [are(0), are(1), are(["a"]), are(2)] == ["are", "is", "is", "are"]


def wrong_counts(tree: ast.AST) -> Iterator[str]:
    """Parts of texts in which a number stands before a plural."""
    for text in ast.walk(tree):
        if not isinstance(text, ast.JoinedStr):
            continue
        parts = text.values
        for before, number, after in zip(
            [ast.Constant(""), *parts], parts, parts[1:], strict=False
        ):
            if not isinstance(number, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            spec = ast.unparse(number.format_spec) if number.format_spec else "f','"
            limit = NOT_ONE.search(_text_of(before))
            constant = ast.unparse(number.value).isupper()
            if ast.unparse(number.value).startswith("counted("):
                continue
            if spec == "f','" and not limit and not constant and COUNT.match(_text_of(after)):
                yield f"{{{ast.unparse(number.value)}}}{_text_of(after)}"


def _text_of(part: ast.expr) -> str:
    """A constant part of a text; empty of any other."""
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""


def test_no_text_has_a_number_before_a_plural() -> None:
    files = [file for folder in SHOWN for file in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 60
    found = {
        str(file.relative_to(ROOT)): texts
        for file in files
        if (texts := [*wrong_counts(ast.parse(file.read_text()))])
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('f"{n:,} alerts"', True),
        ('f"{len(files)} dead letters were kept"', True),
        ('f"{n:,} of {total:,} alerts"', False),
        ('f"more than {most:,} entries"', False),
        ('f"{MOST:,} entries"', False),
        ('f"{seconds:.1f} nights"', False),
        ('f"{name} is there"', False),
    ],
)
def test_it_would_be_found(text: str, wrong: bool) -> None:
    assert bool([*wrong_counts(ast.parse(text))]) == wrong
