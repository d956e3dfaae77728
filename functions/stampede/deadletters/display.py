"""Dead letters on a terminal, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from stampede.deadletters.dead_letter import ERROR, DeadLetter, response_of
from stampede.deadletters.stored import StoredAlerts, StoredOffsets, Whether, has_offset
from stampede.store.offsets.coverage import split_topic_key

if TYPE_CHECKING:
    from stampede.deadletters.accept import Acceptances, Selected
    from stampede.deadletters.replay import Replayed
    from stampede.store.integrity.acceptances.decision import Decision

SHOWN_REFUSALS = 20
REASON_LENGTH = 400  # characters of a reason in a list, more than most have


def as_dict(letter: DeadLetter, whether: Whether, accepted: Decision | None) -> dict[str, Any]:
    """A letter as the JSON members of `stampede deadletters list --json`."""
    key, partition, offset = letter.position or (None, None, None)
    topic, topic_id = split_topic_key(key) if key else (None, None)
    return {
        "id": letter.id,
        "table": letter.table,
        "topic": topic,
        "topic_id": topic_id,
        "partition": partition,
        "offset": offset,
        "file": letter.file,
        "code": letter.code,
        "reason": letter.reason,
        "bytes": len(letter.data),
        "stored": whether.stored,
        "doubt": whether.doubt and whether.doubt.message,
        "accepted": accepted and {"at": accepted.at.isoformat(), "reason": accepted.reason},
        "written": letter.object.modified.isoformat(),
        "object": letter.object.key,
    }


def letter_table(
    letters: Iterable[DeadLetter], stored: StoredAlerts, acceptances: Acceptances, lines: int
) -> list[Table | Text]:
    """The first `lines` letters, one line each, and counts of all of them."""
    table = _empty_table()
    counts: Counter[str] = Counter()
    stored_since = doubtful = accepted = 0
    for letter, whether in stored.of(letters):
        members = as_dict(letter, whether, acceptances.of(letter))
        code = letter.code or "no answer"
        if counts.total() < lines:
            table.add_row(
                text(members["id"]),
                f"{members['bytes']:,}",
                text(letter.code or "-"),
                "since" if whether.stored else "offset only" if whether.doubt else "no",
                "yes" if members["accepted"] else "no",
                text(short(letter.brief(letter.reason or "no answer"), letter.file)),
            )
        counts[f"{letter.table}, {code}"] += 1
        stored_since += whether.stored
        doubtful += whether.doubt is not None
        accepted += members["accepted"] is not None
    total = counts.total()
    if not total:
        return [Text("no dead letters")]
    more = [Text(f"… and {total - lines:,} more", style="dim")] if total > lines else []
    sums = [text(f"{name}: {count:,}") for name, count in sorted(counts.items())]
    last = [Text(f"{total:,} in all, {stored_since:,} stored since, {accepted:,} accepted")]
    if doubtful:
        last.append(
            Text(
                f"offset only: the offsets of {doubtful:,} are stored, but not these alerts, as far"
                " as their bytes can be decoded here; `deadletters show ID` says why",
                "yellow",
            )
        )
    return [table, *more, Text(""), *sums, *last]


def _empty_table() -> Table:
    """The columns of a list of letters."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("id", no_wrap=True, overflow="fold")
    table.add_column("bytes", justify="right")
    table.add_column("code", justify="right")
    table.add_column("stored")
    table.add_column("accepted")
    table.add_column("reason")
    return table


def acceptance_report(selected: Selected, undo: bool, dry_run: bool) -> Text:
    """What `accept` has done with the selected letters, or would do."""
    if undo:
        done, same = "refused again, and not accepted", "were not accepted"
    else:
        done, same = "accepted as rightly refused", "accepted before"
    parts = [f"{selected.count:,} {'would be ' if dry_run else ''}{done}"]
    if selected.same:
        parts.append(f"{selected.same:,} {same}")
    if selected.stored:
        parts.append(f"{selected.stored:,} stored since, so there is nothing to accept")
    return Text(", ".join(parts))


def short(reason: str, file: str | None = None) -> str:
    """A reason with its beginning and its end, which may name the fault; a file comes first."""
    if file and file not in reason:
        reason = f"{file}: {reason}"
    if len(reason) <= REASON_LENGTH:
        return reason
    half = REASON_LENGTH // 2
    return f"{reason[: half - 1]} … {reason[2 - half :]}"


def letter_details(letter: DeadLetter, whether: Whether, accepted: Decision | None) -> Table:
    """Everything about a letter, the error first."""
    members = as_dict(letter, whether, accepted)
    if accepted:
        members["accepted"] = f"{accepted.at:%Y-%m-%d %H:%M:%S} UTC {accepted.reason}".rstrip()
    lines: list[tuple[str, Any]] = [
        (name, members[name]) for name in members if name not in ("code", "table")
    ]
    error = f"{ERROR}data"
    attributes = dict(letter.attributes)
    if error in attributes:
        attributes[error] = response_of(attributes[error])
    for name in sorted(attributes, key=lambda name: (not name.startswith(ERROR), name)):
        lines.append((f"ce-{name}", attributes[name]))
    grid = Table(box=None, padding=(0, 3, 0, 0), show_header=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in lines:
        grid.add_row(text(name), text("-" if value is None else str(value)))
    return grid


def replay_report(done: Replayed, stored: StoredOffsets) -> tuple[int, list[Text]]:
    """Exit status of a replay, and its report; `stored` are the offsets after the replay."""
    lines = [
        text(f"refused again: {name}: {reason}", "bold red")
        for name, reason in done.refused[:SHOWN_REFUSALS]
    ]
    if len(done.refused) > SHOWN_REFUSALS:
        lines.append(text(f"… and {len(done.refused) - SHOWN_REFUSALS:,} more", "bold red"))
    lines.append(
        text(
            f"{done.accepted:,} sent and accepted, {len(done.refused):,} refused again, "
            f"{done.already:,} stored before"
        )
    )
    if done.accepted_before:
        lines.append(
            text(
                f"{done.accepted_before:,} not sent, as they are accepted as rightly refused: "
                "give their IDs to send them"
            )
        )
    lost = sum(
        not has_offset(stored, table, position)
        for table, positions in done.positions.items()
        for position in positions
    )
    if lost:
        lines.append(
            text(
                f"{lost:,} were accepted, but are not in this store: "
                "does that function have another?",
                "bold red",
            )
        )
    if not done.complete:
        lines.append(text("stopped; run the same again to send the rest"))
        return 130, lines
    return 1 if done.refused or lost else 0, lines


def text(value: str, style: str = "") -> Text:
    """Make untrusted text printable: without markup and escape sequences."""
    return Text("".join(c if c.isprintable() or c == "\n" else "�" for c in value), style)
