"""`bench.json` for programs, `bench.md` for readers, with charts in `bench/`."""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from stampede_bench.chart import pictures
from stampede_bench.figures import Bound, Figure


def document(
    about: Mapping[str, Any], command: str, found: Mapping[str, Sequence[Figure]]
) -> dict[str, Any]:
    """All figures in a form that `json` can write.

    Parameters
    ----------
    about
        The machine, the versions, the time, and by benchmark why it `failed` and the seconds
        that it `took`.
    command
        The command that was run.
    found
        Figures by benchmark.
    """
    return {
        **about,
        "command": command,
        "figures": [
            {
                "benchmark": name,
                "command": f"stampede bench {name}",
                **figure._asdict(),
                "rival": figure.rival and figure.rival._asdict(),
                "requirement": figure.requirement and figure.requirement._asdict(),
                "target": figure.target and figure.target._asdict(),
                "ratio": figure.ratio,
                "met": figure.met,
                "on_target": figure.on_target,
            }
            for name, figures in found.items()
            for figure in figures
        ],
    }


def write(out: Path, whole: Mapping[str, Any], found: Mapping[str, Sequence[Figure]]) -> None:
    """Write both files and the charts into the directory `out`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "bench.json").write_text(json.dumps(whole, indent=1) + "\n")
    (out / "bench.md").write_text(markdown(whole, found))
    (out / "bench").mkdir(exist_ok=True)
    for name, figures in found.items():
        for file, _, picture in pictures(name, figures):
            (out / "bench" / file).write_text(picture)


def markdown(whole: Mapping[str, Any], found: Mapping[str, Sequence[Figure]]) -> str:
    """The report: all bounds, and whether they are met, then charts and a table per subject."""
    machine = whole["machine"]
    lines = [
        "# Benchmarks",
        "",
        f"`{whole['command']}`, {whole['when']}",
        "",
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"load average {machine['load_before']} before the run; "
        + ", ".join(f"{name} {version}" for name, version in whole["versions"].items())
        + ".",
        *bounds_table(found),
    ]
    for name, figures in found.items():
        lines += ["", f"## {name}"]
        if seconds := whole.get("took", {}).get(name):
            lines += ["", f"Took {seconds:.0f} s."]
        if why := whole.get("failed", {}).get(name):
            lines += ["", f"**Failed**: {why}"]
        for file, what, _ in pictures(name, figures):
            lines += ["", f"![{what}](bench/{file})"]
        for subject, group in groupby(figures, key=lambda figure: figure.subject):
            rows = [*group]
            lines += ["", f"### {subject}", "", HEAD, RULE, *map(row, rows), *notes(rows)]
    return "\n".join(lines) + "\n"


def notes(figures: Sequence[Figure]) -> list[str]:
    """A line for each figure that has a note, below its table."""
    lines = [f"- {figure.name}: {figure.note}" for figure in figures if figure.note]
    return ["", *lines] if lines else []


def bounds_table(found: Mapping[str, Sequence[Figure]]) -> list[str]:
    """One table of all figures that have a requirement or a target."""
    rows = [
        f"| {name} | {figure.subject} {row(figure)}"
        for name, figures in found.items()
        for figure in figures
        if figure.requirement or figure.target
    ]
    if not rows:
        return []
    head, rule = f"| benchmark | of {HEAD}", f"|---|---{RULE}"
    return ["", "## Requirements and targets", "", verdict(found), "", head, rule, *rows]


def verdict(found: Mapping[str, Sequence[Figure]]) -> str:
    """How many requirements and targets are met."""
    every = [figure for figures in found.values() for figure in figures]
    requirements = [figure.met for figure in every if figure.requirement]
    targets = [figure.on_target for figure in every if figure.target]
    met = f"{sum(map(bool, requirements))} of {len(requirements)} requirements met"
    return f"{met}, {sum(map(bool, targets))} of {len(targets)} targets" if targets else met


HEAD = "| what | value | unit | rounds | beside | ratio | requirement | target |"
RULE = "|---|--:|---|---|---|--:|---|---|"


def row(figure: Figure) -> str:
    """A figure as one line of a table."""
    beside = f"{figure.rival.what}: {number(figure.rival.value)}" if figure.rival else ""
    ratio = "" if figure.ratio is None else number(figure.ratio)
    spread = " - ".join(map(number, figure.spread)) if figure.spread else ""
    requirement = judgement(figure.requirement, figure.met, "**missed**")
    target = judgement(figure.target, figure.on_target, "not met")
    cells = (
        figure.name,
        number(figure.value),
        figure.unit,
        spread,
        beside,
        ratio,
        requirement,
        target,
    )
    return f"| {' | '.join(cells)} |"


def judgement(bound: Bound | None, met: bool | None, missed: str) -> str:
    """A bound, and whether it is met."""
    if bound is None:
        return ""
    ratio = "x" if bound.ratio else ""
    return f"{bound.relation} {number(bound.value)}{ratio}: {'met' if met else missed}"


def number(value: float) -> str:
    """A number with at least three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if 0 < abs(value) < 0.1:
        return f"{value:.2g}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
