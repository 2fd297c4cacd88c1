"""Charts of noisy results as SVG: bars, lines and heat maps, each number with its 95 % interval.

Which one suits is a matter of the result's form alone: lines for many ordered keys, a heat map for
two keys, bars for the rest. Colours are those of the page: the style sheet knows the class names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from dpsql.answer.rounding import error_text
from dpsql.errors import printable
from dpsql.records import dataclass
from dpsql.ui.chart import Z95
from dpsql.ui.grid import Grid, clip, decimals_for, fixed_decimals, plain

LABEL, PLOT, NOTE, LINE = 190, 430, 140, 18
"""Widths of the three columns of a chart, and the height of a line, in points of SVG."""
HEIGHT, FOOT = 220, 34
"""Heights of a line chart and of the labels under it."""
MAX_BARS = 120
"""Bars of a chart: at 18 points a line, two screens; the table below has every row."""
MAX_POINTS = 2000
"""Points of a line: more are wider apart than a screen has pixels."""
MAX_SERIES = 5
"""Lines that can be told apart."""
MAX_CELLS = 40
"""Rows and columns of a heat map."""
FROM_LINE = 9
"""Ordered keys from this number on are a line: fewer are read better as bars."""
ORDERED = ("integer", "number", "date", "timestamp", "time")
TICKS = 5


@dataclass(frozen=True, slots=True)
class Point:
    """One number of a chart with its 95 % interval; ``keys`` say where it stands."""

    keys: tuple[str, ...]
    value: float
    stddev: float
    low: float
    high: float

    @property
    def label(self) -> str:
        """Its keys in one text."""
        return ", ".join(self.keys)


Intervals = tuple[tuple[tuple[float, float] | None, ...] | None, ...]


def draw_column(grid: Grid, column: int, intervals: Intervals) -> str:
    """Draw one noisy column over the keys before it; empty where no chart suits.

    Args:
        grid: one result.
        column: number of a noisy column, from 0.
        intervals: per column None, or one pair (low, high) per row.

    Returns: SVG.
    """
    keys = key_columns(grid)
    points = _points(grid, column, keys, intervals)
    if len(points) < 2:
        return ""
    if len(keys) == 1 and grid.types[keys[0]] in ORDERED and len(points) >= FROM_LINE:
        return draw_lines({"": points}) if len(points) <= MAX_POINTS else ""
    if len(keys) == 2:
        found = _draw_pairs(points, [grid.types[k] in ORDERED for k in keys])
        if found:
            return found
    return draw_bars_svg(points) if len(points) <= MAX_BARS else ""


def key_columns(grid: Grid) -> list[int]:
    """The exact columns before the first noisy one: what a row is about."""
    noisy = [j for j, deviations in enumerate(grid.stddev) if deviations is not None]
    return list(range(noisy[0])) if noisy else []


def _points(grid: Grid, column: int, keys: Sequence[int], intervals: Intervals) -> list[Point]:
    found = []
    pairs = intervals[column]
    for i, row in enumerate(grid.rows()):
        value, error = row[column], (grid.stddev[column] or ())[i]
        if error is None or not isinstance(value, int | float) or not math.isfinite(value):
            continue
        pair = pairs[i] if pairs is not None else None
        half = 0.0 if math.isnan(error) else Z95 * error
        low, high = pair or (value - half, value + half)
        named = tuple("NULL" if row[k] is None else printable(plain(row[k])) for k in keys)
        found.append(Point(named, float(value), error, low, high))
    return found


def _draw_pairs(points: Sequence[Point], ordered: Sequence[bool]) -> str:
    """Draw a table of two keys: few lines over an ordered key, else a heat map."""
    across = list(dict.fromkeys(point.keys[1] for point in points))
    down = list(dict.fromkeys(point.keys[0] for point in points))
    if len({point.keys for point in points}) < len(points):
        return ""
    if ordered[1] and len(across) >= FROM_LINE and len(down) <= MAX_SERIES:
        return draw_lines({key: [p for p in points if p.keys[0] == key] for key in down}, 1)
    if ordered[0] and len(down) >= FROM_LINE and len(across) <= MAX_SERIES:
        return draw_lines({key: [p for p in points if p.keys[1] == key] for key in across}, 0)
    fits = 2 <= len(down) <= MAX_CELLS and 2 <= len(across) <= MAX_CELLS
    return draw_heat(points, down, across) if fits and len(points) > 4 else ""


def draw_bars_svg(points: Sequence[Point]) -> str:
    """Draw horizontal bars from zero with whiskers."""
    low = min(0.0, *(point.low for point in points))
    high = max(0.0, *(point.high for point in points))
    scale = PLOT / (high - low) if high > low else 0.0
    decimals = decimals_for(point.stddev for point in points)
    zero = LABEL + (0 - low) * scale
    rows = [_bar(point, k, low, scale, decimals) for k, point in enumerate(points)]
    axis = f'<line class="axis" x1="{zero:.1f}" x2="{zero:.1f}" y1="0" y2="{LINE * len(points)}"/>'
    return _svg(LINE * len(points) + 2, "".join(rows) + axis)


def _bar(point: Point, k: int, low: float, scale: float, decimals: int) -> str:
    zero, value, left, right = (
        LABEL + (x - low) * scale for x in (0.0, point.value, point.low, point.high)
    )
    y = LINE * k
    middle = y + LINE / 2
    ticks = "".join(
        f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{middle - 4}" y2="{middle + 4}"/>'
        for x in (left, right)
    )
    return (
        _name(point.label, y) + f'<rect class="bar" x="{min(zero, value):.1f}" y="{y + 3}" '
        f'width="{abs(value - zero):.1f}" height="{LINE - 6}"/>'
        f'<line class="whisker" x1="{left:.1f}" x2="{right:.1f}" y1="{middle}" y2="{middle}"/>'
        f"{ticks}{_text(LABEL + PLOT + 10, y + 13, _said(point, decimals))}\n"
    )


def draw_lines(series: dict[str, list[Point]], key: int = 0) -> str:
    """Draw a line for every series over their common keys, each in the band of its intervals."""
    names = list(dict.fromkeys(p.keys[key] for points in series.values() for p in points))
    low = min(0.0, *(p.low for points in series.values() for p in points))
    high = max(0.0, *(p.high for points in series.values() for p in points))
    step = _step((high - low) or 1.0)
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step or step
    place = {name: _across(k, len(names)) for k, name in enumerate(names)}
    body = _grid_lines(low, high, step) + _under(names)
    for k, (name, points) in enumerate(series.items()):
        body += _line([(place[p.keys[key]], p) for p in points], low, high, k)
        if name:
            y = 14 + LINE * k
            body += (
                f'<rect class="s{k}" x="{LABEL + PLOT + 12}" y="{y - 9}" width="10" height="10"/>'
            )
            body += _text(LABEL + PLOT + 28, y, clip(name, 18))
    return _svg(HEIGHT + FOOT, body)


def _across(k: int, count: int) -> float:
    left = LABEL / 2
    return left + (LABEL / 2 + PLOT) * (k / (count - 1) if count > 1 else 0.5)


def _line(placed: Sequence[tuple[float, Point]], low: float, high: float, k: int) -> str:
    def up(value: float) -> float:
        return HEIGHT - 8 - (HEIGHT - 16) * (value - low) / (high - low)

    upper = [f"{x:.1f},{up(p.high):.1f}" for x, p in placed]
    lower = [f"{x:.1f},{up(p.low):.1f}" for x, p in reversed(placed)]
    line = " ".join(f"{x:.1f},{up(p.value):.1f}" for x, p in placed)
    decimals = decimals_for(p.stddev for _, p in placed)
    radius = 2.2 if len(placed) < 90 else 1
    dots = "".join(
        f'<circle class="s{k}" cx="{x:.1f}" cy="{up(p.value):.1f}" r="{radius}">'
        f"<title>{escape(f'{p.label}: {_said(p, decimals)}')}</title></circle>"
        for x, p in placed
    )
    return (
        f'<polygon class="band s{k}" points="{" ".join(upper + lower)}"/>'
        f'<polyline class="line l{k}" points="{line}"/>{dots}\n'
    )


def _step(span: float) -> float:
    """A round number that fits some four times.

    >>> _step(730.0), _step(0.09)
    (200.0, 0.02)
    """
    rough = span / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)


def _grid_lines(low: float, high: float, step: float) -> str:
    left, right = LABEL / 2, LABEL + PLOT
    lines = []
    for k in range(round((high - low) / step) + 1):
        value = low + k * step
        y = HEIGHT - 8 - (HEIGHT - 16) * (value - low) / (high - low)
        kind = "axis" if abs(value) < step / 2 else "rule"
        lines.append(f'<line class="{kind}" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(_text(left - 6, y + 4, f"{value:,.6g}", "end"))
    return "".join(lines)


def _under(names: Sequence[str]) -> str:
    """The labels under a line chart: at most eight, the first and the last among them."""
    every = max(1, math.ceil((len(names) - 1) / 7))
    shown = [k for k in range(0, len(names), every) if len(names) - 1 - k >= every / 2]
    return "".join(
        _text(_across(k, len(names)), HEIGHT + 14, clip(names[k], 12), "middle")
        for k in [*shown, len(names) - 1]
    )


def draw_heat(points: Sequence[Point], down: Sequence[str], across: Sequence[str]) -> str:
    """Draw a table of two keys: the darker a cell, the larger its number.

    Args:
        points: numbers with their two keys and their standard errors.
        down, across: values of the first and of the second key, in the order in which they are
            drawn.
    """
    largest = max(abs(point.value) for point in points) or 1.0
    width = min(64.0, (PLOT + NOTE) / len(across))
    deep = max((len(clip(name, 18)) for name in across), default=0)
    slanted = width < 8 * deep
    top = 14 + (deep * 4.6 if slanted else 6)
    decimals = decimals_for(point.stddev for point in points)
    body = "".join(
        _head(clip(n, 18), LABEL + width * (k + 0.5), top, slanted) for k, n in enumerate(across)
    )
    body += "".join(_name(name, top + LINE * k) for k, name in enumerate(down))
    column, row = ({name: k for k, name in enumerate(names)} for names in (across, down))
    for point in points:
        x, y = LABEL + width * column[point.keys[1]], top + LINE * row[point.keys[0]]
        kind = "cell" if point.value >= 0 else "minus"
        shade = min(1.0, abs(point.value) / largest)
        body += (
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width - 1:.1f}" '
            f'height="{LINE - 1}" fill-opacity="{0.04 + 0.86 * shade:.3f}"><title>'
            f"{escape(f'{point.label}: {_said(point, decimals)}')}</title></rect>"
        )
        if width >= 40 and len(fixed_decimals(point.value, 0)) * 7 < width:
            kind = "deep" if shade > 0.65 else ""
            body += _text(x + width / 2, y + 13, fixed_decimals(point.value, 0), "middle", kind)
    return _svg(top + LINE * len(down) + 2, body)


def _head(name: str, x: float, y: float, slanted: bool) -> str:
    turn = f' transform="rotate(-35 {x:.1f} {y - 6:.1f})"' if slanted else ""
    anchor = "start" if slanted else "middle"
    return f'<text x="{x:.1f}" y="{y - 6:.1f}" text-anchor="{anchor}"{turn}>{escape(name)}</text>'


def draw_ratios(entries: Iterable[tuple[str, float, str]]) -> str:
    """Draw expected errors of one unit as bars: (name, error, what stands beside it)."""
    listed = [entry for entry in entries if math.isfinite(entry[1])]
    longest = max((error for _, error, _ in listed), default=0.0) or 1.0
    rows = [
        _name(name, LINE * k)
        + f'<rect class="{"here" if k == 0 else "bar"}" x="{LABEL}" y="{LINE * k + 3}" '
        f'width="{max(1.0, PLOT * error / longest):.1f}" height="{LINE - 6}"/>'
        f"{_text(LABEL + PLOT + 10, LINE * k + 13, said)}\n"
        for k, (name, error, said) in enumerate(listed)
    ]
    return _svg(LINE * len(listed) + 2, "".join(rows))


def _said(point: Point, decimals: int) -> str:
    return f"{fixed_decimals(point.value, decimals)} ± {error_text(point.stddev, decimals)}"


def _name(text: str, y: float) -> str:
    return _text(LABEL - 8, y + 13, clip(printable(text), 28), "end")


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _svg(height: float, body: str) -> str:
    width = LABEL + PLOT + NOTE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" '
        f'width="{width}" height="{height:.0f}" role="img">\n{body}</svg>'
    )
