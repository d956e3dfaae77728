"""Dead letters on a terminal, and as JSON."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

from stampede.deadletters.dead_letter import ERROR, DeadLetter, answer_of
from stampede.deadletters.reader import Stored, is_stored
from stampede.deadletters.replay import Replayed

REFUSALS = 20  # told one by one
SHORT = 100  # characters of a reason in a list


def as_dict(letter: DeadLetter, stored: Stored) -> dict[str, Any]:
    """What a list says of a letter."""
    topic, partition, offset = letter.position or (None, None, None)
    return {
        "id": letter.id,
        "table": letter.table,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "code": letter.code,
        "reason": letter.reason,
        "bytes": len(letter.data),
        "stored": is_stored(stored, letter.table, letter.position),
        "written": letter.object.modified.isoformat(),
        "object": letter.object.key,
    }


def tabled(letters: Iterable[DeadLetter], stored: Stored, lines: int) -> list[Table | Text]:
    """The first so many letters, a line each, and sums of all of them."""
    shown = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    shown.add_column("id", no_wrap=True, overflow="fold")
    shown.add_column("bytes", justify="right")
    shown.add_column("code", justify="right")
    shown.add_column("stored")
    shown.add_column("reason")
    sums: Counter[str] = Counter()
    since = 0
    for letter in letters:
        about = as_dict(letter, stored)
        code = letter.code or "no answer"
        if sums.total() < lines:
            shown.add_row(
                text(about["id"]),
                f"{about['bytes']:,}",
                text(letter.code or "-"),
                "since" if about["stored"] else "no",
                text(short(letter.brief(letter.reason or "no answer"))),
            )
        sums[f"{letter.table}, {code}"] += 1
        since += about["stored"]
    total = sums.total()
    if not total:
        return [Text("no dead letters")]
    more = [Text(f"… and {total - lines:,} more", style="dim")] if total > lines else []
    counts = [text(f"{what}: {count:,}") for what, count in sorted(sums.items())]
    return [shown, *more, Text(""), *counts, Text(f"{total:,} in all, {since:,} stored since")]


def short(words: str) -> str:
    """The beginning of a reason."""
    return words if len(words) <= SHORT else f"{words[: SHORT - 1]}…"


def described(letter: DeadLetter, stored: Stored) -> Table:
    """All there is to say about a letter, what went wrong first."""
    about = as_dict(letter, stored)
    lines: list[tuple[str, Any]] = [
        (name, about[name]) for name in about if name not in ("code", "table")
    ]
    error = f"{ERROR}data"
    attributes = dict(letter.attributes)
    if error in attributes:
        attributes[error] = answer_of(attributes[error])
    for name in sorted(attributes, key=lambda name: (not name.startswith(ERROR), name)):
        lines.append((f"ce-{name}", attributes[name]))
    grid = Table(box=None, padding=(0, 3, 0, 0), show_header=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in lines:
        grid.add_row(text(name), text("-" if value is None else str(value)))
    return grid


def outcome(done: Replayed, stored: Stored) -> tuple[int, list[Text]]:
    """Exit status and what to say after a replay, held against what is stored by now."""
    lines = [
        text(f"refused again: {name}: {said}", "bold red") for name, said in done.refused[:REFUSALS]
    ]
    if len(done.refused) > REFUSALS:
        lines.append(text(f"… and {len(done.refused) - REFUSALS:,} more", "bold red"))
    lines.append(
        text(
            f"{done.accepted:,} sent and accepted, {len(done.refused):,} refused again, "
            f"{done.already:,} stored before"
        )
    )
    open_ = [
        (table, position)
        for table, some in done.positions.items()
        for position in some
        if not is_stored(stored, table, position)
    ]
    if open_:
        lines.append(
            text(
                f"{len(open_):,} were accepted, but are not in this store: "
                "does that function have another?",
                "bold red",
            )
        )
    if not done.complete:
        lines.append(text("stopped; run the same again to send the rest"))
    return 130 if not done.complete else 1 if done.refused or open_ else 0, lines


def text(value: str, style: str = "") -> Text:
    """Words from anywhere, as they can be printed: no markup, no escape sequences."""
    return Text("".join(c if c.isprintable() or c == "\n" else "�" for c in value), style)
