"""`bench.json` for programs, `bench.md` for readers, with charts in `bench/`."""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from stampede_bench.chart import pictures
from stampede_bench.figures import Figure, Must


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
                "must": figure.must and figure.must._asdict(),
                "aim": figure.aim and figure.aim._asdict(),
                "ratio": figure.ratio,
                "met": figure.met,
                "aimed": figure.aimed,
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
        for subject, rows in groupby(figures, key=lambda figure: figure.subject):
            lines += ["", f"### {subject}", "", HEAD, RULE, *map(row, rows)]
    return "\n".join(lines) + "\n"


def bounds_table(found: Mapping[str, Sequence[Figure]]) -> list[str]:
    """One table of all figures that have a bound or an aim."""
    rows = [
        f"| {name} | {figure.subject} {row(figure)}"
        for name, figures in found.items()
        for figure in figures
        if figure.must or figure.aim
    ]
    if not rows:
        return []
    head, rule = f"| benchmark | of {HEAD}", f"|---|---{RULE}"
    return ["", "## Bounds and aims", "", verdict(found), "", head, rule, *rows]


def verdict(found: Mapping[str, Sequence[Figure]]) -> str:
    """How many bounds and aims are met."""
    every = [figure for figures in found.values() for figure in figures]
    musts = [figure.met for figure in every if figure.must]
    aims = [figure.aimed for figure in every if figure.aim]
    met = f"{sum(map(bool, musts))} of {len(musts)} musts met"
    return f"{met}, {sum(map(bool, aims))} of {len(aims)} aims" if aims else met


HEAD = "| what | value | unit | rounds | beside | ratio | must | aim |"
RULE = "|---|--:|---|---|---|--:|---|---|"


def row(figure: Figure) -> str:
    """A figure as one line of a table."""
    beside = f"{figure.rival.what}: {number(figure.rival.value)}" if figure.rival else ""
    ratio = "" if figure.ratio is None else number(figure.ratio)
    spread = " - ".join(map(number, figure.spread)) if figure.spread else ""
    must = judgement(figure.must, figure.met, "**missed**")
    aim = judgement(figure.aim, figure.aimed, "not met")
    cells = (figure.name, number(figure.value), figure.unit, spread, beside, ratio, must, aim)
    return f"| {' | '.join(cells)} |"


def judgement(must: Must | None, met: bool | None, missed: str) -> str:
    """A bound, and whether it is met."""
    if must is None:
        return ""
    ratio = "x" if must.ratio else ""
    return f"{must.relation} {number(must.value)}{ratio}: {'met' if met else missed}"


def number(value: float) -> str:
    """A number with at least three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if 0 < abs(value) < 0.1:
        return f"{value:.2g}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
