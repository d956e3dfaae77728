"""Writes docs/tested-with.md: `python tools/tested_with.py [build/tested-with.jsonl]`.

The tests append to build/tested-with.jsonl what they ran with, and with which outcome. With that
file, docs/tested-with.json takes its lines: of each program, version and suite the latest day, and
of that day the longest run. The page is made from docs/tested-with.json; a test compares the two.
"""

import json
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
KEPT, PAGE = DOCS / "tested-with.json", DOCS / "tested-with.md"
Row = dict[str, Any]
OUTCOMES = ("passed", "failed", "skipped")
INTRODUCTION = """\
# Tested with

The tests wrote these figures when they ran: which version answered, as it says it itself, and what
became of the tests that used it. A test that uses two servers counts for both. Clients of other
programs are pinned in [the requirements](../requirements-dev.txt). What differs between stores is
in [S3 stores](explanation/s3-stores.md).

| program | version | tests | date | passed | failed | skipped |
|---|---|---|---|--:|--:|--:|
"""


def page(rows: Iterable[Row]) -> str:
    """The whole page."""
    lines = [
        f"| {row['software']} | {row['version']} | [{row['suite']}](../{row['suite']}) "
        f"| {row['date']} | {row['passed']} | {row['failed']} | {row['skipped']} |\n"
        for row in sorted(rows, key=_key)
    ]
    return INTRODUCTION + "".join(lines)


def merged(kept: Iterable[Row], lines: Iterable[Row]) -> list[Row]:
    """The rows to keep: of each program, version and suite the latest day's longest run."""
    runs: dict[tuple[Any, ...], Row] = {}
    for line in lines:
        run = runs.setdefault((*_key(line), line["run"]), {**line, **dict.fromkeys(OUTCOMES, 0)})
        for name in OUTCOMES:
            run[name] += line[name]
    found = sorted([*kept, *runs.values()], key=_key)
    # Of two that are as long, the later: `max` takes the first.
    best = [max(reversed([*rows]), key=_weight) for _, rows in groupby(found, _key)]
    return [{name: value for name, value in row.items() if name != "run"} for row in best]


def _key(row: Row) -> tuple[str, tuple[str, ...], str]:
    """Where a row is in the page; 16.2 is after 9.1."""
    numbers = tuple(part.zfill(6) for part in row["version"].split("."))
    return row["software"], numbers, row["suite"]


def _weight(row: Row) -> tuple[str, int]:
    return row["date"], sum(row[name] for name in OUTCOMES)


def main(arguments: list[str]) -> None:
    """Take the lines of files, and write the page."""
    lines = [json.loads(line) for name in arguments for line in Path(name).read_text().splitlines()]
    rows = merged(json.loads(KEPT.read_text()) if KEPT.exists() else [], lines)
    KEPT.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    PAGE.write_text(page(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
