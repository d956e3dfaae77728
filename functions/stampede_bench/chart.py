"""Figures as SVG charts for the report, without scripts, fonts or other files."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import cycle

from stampede_bench.figures import Figure

WIDTH, LABELS, BAR, MARGIN = 960, 430, 22, 34
HEIGHT = 320  # of a chart of curves
FEWEST = 3  # points that make a curve
MOST = 8  # curves in one chart
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666", "#000")
GOOD, SHORT, BAD = "#009e73", "#e69f00", "#d55e00"


def pictures(name: str, figures: Sequence[Figure]) -> Iterator[tuple[str, str, str]]:
    """(File name, title, SVG) of each chart of a benchmark's figures."""
    if judged := [figure for figure in figures if figure.requirement]:
        yield f"{name}.svg", f"{name}: each figure in units of its bound", bars(judged)
    units = {figure.unit: None for figure in figures}
    for number, unit in enumerate(units):
        if curves := curves_of([figure for figure in figures if figure.unit == unit]):
            yield f"{name}-{number}.svg", f"{name}: {unit}", plot(curves, unit)


def curves_of(figures: Sequence[Figure]) -> dict[str, dict[str, float]]:
    """Values by name and by subject, of names that several subjects have."""
    found: dict[str, dict[str, float]] = {}
    for figure in figures:
        if figure.value > 0:
            found.setdefault(figure.name, {})[figure.subject] = figure.value
    several = [item for item in found.items() if len(item[1]) >= FEWEST]
    return dict(several[:MOST])


def bars(figures: Sequence[Figure]) -> str:
    """One bar per figure: right of the line it is within its bound. The tick marks the target."""
    reached = [share(figure) for figure in figures]
    targets = [target_of(figure) for figure in figures]
    scale = Log([*reached, *filter(None, targets), 0.5, 2.0], LABELS, WIDTH - MARGIN)
    zero, height = scale(1.0), MARGIN + BAR * len(figures)
    parts = []
    for row, (figure, value, target) in enumerate(zip(figures, reached, targets, strict=True)):
        y, x = MARGIN + BAR * row, scale(value)
        colour = BAD if not figure.met else SHORT if figure.on_target is False else GOOD
        label = f"{figure.subject}: {figure.name}"
        parts += [
            text(LABELS - 8, y + 14, shortened(label, 68), "end"),
            f'<rect x="{min(x, zero):.1f}" y="{y + 3}" width="{max(1.0, abs(x - zero)):.1f}" '
            f'height="{BAR - 7}" fill="{colour}"/>',
        ]
        if target:
            parts.append(line(scale(target), y + 1, scale(target), y + BAR - 2))
    parts.append(line(zero, MARGIN - 6, zero, height))
    parts += [text(scale(tick), MARGIN - 12, f"{tick:g}x", "middle") for tick in scale.ticks()]
    return svg(WIDTH, height + 10, parts)


def plot(curves: dict[str, dict[str, float]], unit: str) -> str:
    """One curve per name over the subjects in their order, on a logarithmic scale."""
    subjects = list({subject: None for points in curves.values() for subject in points})
    bottom, legend = HEIGHT - 70, BAR * len(curves)
    scale = Log([value for points in curves.values() for value in points.values()], bottom, MARGIN)
    step = (WIDTH - 160) / max(1, len(subjects) - 1)
    positions = {subject: 80 + number * step for number, subject in enumerate(subjects)}
    parts = [text(8, 18, unit, "start")]
    for tick in scale.ticks():
        parts += [
            line(70, scale(tick), WIDTH - 70, scale(tick), "#ddd"),
            text(64, scale(tick) + 4, f"{tick:g}", "end"),
        ]
    for number, (subject, x) in enumerate(positions.items()):
        label = shortened(subject, max(10, round(2 * step / 7.5)))
        anchor = "start" if number == 0 else "end" if number == len(positions) - 1 else "middle"
        at = {"start": 20.0, "end": WIDTH - 20.0}.get(anchor, x)
        parts.append(text(at, bottom + 22 + 16 * (number % 2), label, anchor))
    for number, ((name, points), colour) in enumerate(zip(curves.items(), cycle(COLOURS))):
        path = [(positions[subject], scale(value)) for subject, value in points.items()]
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
        y = HEIGHT - 10 + BAR * number
        parts += [
            f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>',
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in path),
            f'<rect x="80" y="{y - 10}" width="14" height="10" fill="{colour}"/>',
            text(102, y, name, "start"),
        ]
    return svg(WIDTH, HEIGHT + legend, parts)


def share(figure: Figure) -> float:
    """A figure in units of its bound; more than 1 is within it."""
    assert figure.requirement
    return times(figure.judged, figure.requirement.value, figure.requirement.relation)


def target_of(figure: Figure) -> float | None:
    """The target in units of the bound; None if the two cannot be compared."""
    if (
        not (figure.target and figure.requirement)
        or figure.target.ratio != figure.requirement.ratio
    ):
        return None
    return times(figure.target.value, figure.requirement.value, figure.requirement.relation)


def times(value: float, requirement: float, relation: str) -> float:
    """`value / requirement`, or its inverse if less is better, limited to 0.01 to 100."""
    above, below = (value, requirement) if relation == ">=" else (requirement, value)
    if above <= 0 and below <= 0:  # the bound is zero and it is met
        return 1.0
    return min(100.0, max(0.01, above / below if below > 0 else 100.0))


class Log:
    """A logarithmic scale with ticks at decades, and at 1, 2 and 5 if there are few decades."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = min(values), max(values)
        if self.high / self.low < 1.5:
            self.low, self.high = self.low / 1.5, self.high * 1.5
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        """The position of a value."""
        along = math.log(value / self.low) / math.log(self.high / self.low)
        return self._start + along * (self._end - self._start)

    def ticks(self) -> list[float]:
        """The round numbers within the scale."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1, 2, 5) if len(decades) <= 4 else (1,)
        ticks = [step * 10.0**power for power in decades for step in steps]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def shortened(label: str, most: int) -> str:
    """A label of at most `most` characters."""
    return label if len(label) <= most else f"{label[: most - 1]}…"


def text(x: float, y: float, words: str, anchor: str) -> str:
    """A line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = "#333") -> str:
    """A thin line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}"/>'


def svg(width: int, height: int, parts: Sequence[str]) -> str:
    """An SVG image of these elements."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
