"""Bars with error whiskers, drawn in text."""

from __future__ import annotations

import math

from dpsql.answer.rounding import error_text
from dpsql.errors import ProgrammingError, printable, text_width
from dpsql.records import dataclass
from dpsql.ui.grid import Grid, clip, decimals_for, fixed_decimals, pad, plain

Z95 = 1.959963984540054
"""Half a 95 % interval in standard errors, where a result tells no interval of its own."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One group: its label, value, standard error (NaN where not known) and 95 % interval."""

    label: str
    value: float
    stddev: float
    low: float
    high: float


def bars_of(
    grid: Grid,
    column: str | None = None,
    intervals: tuple[tuple[tuple[float, float] | None, ...] | None, ...] | None = None,
) -> tuple[str, list[Bar]]:
    """Return the name of a noisy column (the first unless named) and one bar per row.

    Args:
        grid: one result; its keys are the columns without errors before the first noisy one.
        column: name in any case, None for the first noisy column.
        intervals: per column None, or one pair (low, high) per row; without one, 1.96 standard
            errors on both sides.

    Raises: ProgrammingError when there is no such noisy column.
    """
    noisy = [j for j, deviations in enumerate(grid.stddev) if deviations is not None]
    wanted = [j for j in noisy if column is None or grid.columns[j].lower() == column.lower()]
    if not wanted:
        names = ", ".join(printable(grid.columns[j]) for j in noisy) or "none"
        what = "no noisy column" if column is None else f"no noisy column {printable(column)!r}"
        raise ProgrammingError("E_PLOT", f"{what} to plot", hint=f"noisy columns: {names}")
    j = wanted[0]
    keys = [k for k in range(noisy[0] or len(grid.columns)) if grid.stddev[k] is None]
    bars = []
    for i, row in enumerate(grid.rows()):
        deviation = (grid.stddev[j] or ())[i]
        if not isinstance(row[j], int | float) or deviation is None:
            continue
        value = float(str(row[j]))
        pair = (intervals[j] or ())[i] if intervals is not None and intervals[j] else None
        half = 0.0 if math.isnan(deviation) else Z95 * deviation
        low, high = pair or (value - half, value + half)
        label = ", ".join("NULL" if row[k] is None else plain(row[k]) for k in keys)
        bars.append(Bar(printable(label), value, deviation, low, high))
    return grid.columns[j], bars


def draw_bars(name: str, bars: list[Bar], width: int = 80, unicode: bool = True) -> str:
    """Draw one line per bar: label, bar from zero with its 95 % whisker, value ± stddev.

    Args:
        name: heading: the name of the column.
        bars: one per row, in order; numbers are in units of the column.
        width: of the terminal, in cells.
        unicode: False for a terminal or locale that has ASCII alone.

    >>> print(draw_bars("n", [Bar("a", 4.0, 1.0, 2.0, 6.0), Bar("b", 8.0, 1.0, 6.0, 10.0)], 40))
    n (whiskers: 95 % interval)
    a │█████├──────────┤           4.0 ± 1.0
    b │████████████████├─────────┤ 8.0 ± 1.0
    <BLANKLINE>
    """
    if not bars:
        return f"{printable(name)}: nothing to draw\n"
    decimals = decimals_for(bar.stddev for bar in bars)
    sign = "±" if unicode else "+/-"
    notes = [
        f"{fixed_decimals(bar.value, decimals)} {sign} {error_text(bar.stddev, decimals)}"
        for bar in bars
    ]
    labels = [clip(bar.label, max(8, width // 3)) for bar in bars]
    left, right = max(map(text_width, labels)), max(map(len, notes))
    room = max(10, width - left - right - 3)
    low = min(0.0, *(bar.low for bar in bars))
    high = max(0.0, *(bar.high for bar in bars))
    lines = [
        f"{pad(label, left)} {_draw_bar(bar, low, high, room, unicode)} {pad(note, right, True)}"
        for label, bar, note in zip(labels, bars, notes, strict=True)
    ]
    return "\n".join([f"{printable(name)} (whiskers: 95 % interval)", *lines]) + "\n"


def _draw_bar(bar: Bar, low: float, high: float, room: int, unicode: bool) -> str:
    """Draw one bar in ``room`` cells plus the axis; the axis stands at zero."""
    axis, block, left, line, right = "│█├─┤" if unicode else "|#[-]"
    scale = (room - 1) / (high - low) if high > low else 0.0
    zero, value, a, b = (round((x - low) * scale) for x in (0.0, bar.value, bar.low, bar.high))
    cells = [" "] * room
    for k in range(min(zero, value), max(zero, value)):
        cells[k] = block
    for k in range(a, b + 1):
        cells[k] = line
    cells[a], cells[b] = left, right
    cells.insert(zero, axis)
    return "".join(cells)
