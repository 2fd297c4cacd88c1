"""Pictures of results: every noisy number with its 95 % interval. matplotlib is optional."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsql.answer.dataframes import needed
from dpsql.answer.numbers import Numbers
from dpsql.answer.rounding import plain
from dpsql.errors import ProgrammingError, printable

MOST_BARS = 60
"""Groups without an order that are still told apart on an axis."""

NUMBERS = ("integer", "number")
SPAN = "with 95 % intervals"
WITHOUT = "standard errors not known"

MOST_CELLS = 40
"""Values of a key that are still labelled beside a heat map."""


def noisy_columns(result: Numbers) -> list[int]:
    """The columns of noisy numbers with known standard errors; of others where there are none."""
    known = [j for j, each in enumerate(result.stddev) if each and any(e is not None for e in each)]
    noisy = [j for j, each in enumerate(result.stddev) if each and result.types[j] in NUMBERS]
    return known or noisy or [j for j, kind in enumerate(result.types) if kind == "number"]


def chosen_column(result: Numbers, column: str | None) -> int:
    """The column to draw. Raises: ProgrammingError (E_PLOT) where there is none of that name."""
    found = noisy_columns(result)
    wanted = [j for j in found if column is None or result.columns[j].lower() == column.lower()]
    if wanted and result.rows:
        return wanted[0]
    names = ", ".join(printable(result.columns[j]) for j in found) or "none"
    what = "nothing to plot" if column is None else f"no column {printable(column)!r} to plot"
    raise ProgrammingError("E_PLOT", what, hint=f"columns of noisy numbers: {names}")


def key_columns(result: Numbers) -> list[int]:
    """The columns that name the rows: those before the first noisy one, else all without noise."""
    noisy = noisy_columns(result)
    before = list(range(noisy[0]))
    return before or [j for j, each in enumerate(result.stddev) if each is None and j not in noisy]


def draw(result: Numbers, column: str | None = None, ax: Any = None) -> Any:
    """Draw a column on ``ax``, by default on axes of its own, and return the axes.

    Raises: ProgrammingError (E_PLOT); NotSupportedError (E_PACKAGE) without matplotlib.
    """
    j = chosen_column(result, column)
    keys = key_columns(result)
    pyplot = needed("matplotlib.pyplot", "a picture", "plot")
    ax = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    label, name = " / ".join(_drawn(result.columns[k]) for k in keys), _drawn(result.columns[j])
    pairs = {tuple(row[k] for k in keys) for row in result.rows}
    if len(keys) == 2 and len(pairs) == len(result.rows) > 2:
        _draw_heat(result, j, keys, ax)
    elif len(keys) == 1 and is_ordered([row[keys[0]] for row in result.rows]):
        _draw_line(result, j, keys[0], ax)
        ax.set(xlabel=label, ylabel=name)
    else:
        _draw_bars(result, j, keys, ax)
        ax.set(ylabel=label, xlabel=name)
    return ax


def is_ordered(values: Sequence[object]) -> bool:
    """True if a key has numbers or dates, in order, so that a line between them means something.

    >>> is_ordered([1, 2, 5]), is_ordered(["a", "b"]), is_ordered([1, None, 5])
    (True, False, False)
    """
    kinds = (int, float, dt.date)
    if len(values) < 3 or not all(isinstance(v, kinds) and v is not True for v in values):
        return False
    numbers: list[Any] = list(values)
    steps = list(itertools.pairwise(numbers))
    return all(a < b for a, b in steps) or all(a > b for a, b in steps)


def _spans(result: Numbers, j: int) -> tuple[Any, Any]:
    """The numbers (rows,) and the half width of their 95 % intervals (rows,), NaN where unknown."""
    values = [row[j] for row in result.rows]
    spans = result.intervals[j] or (None,) * len(values)
    halves = [np.nan if span is None else (span[1] - span[0]) / 2 for span in spans]
    return np.array([np.nan if v is None else float(v) for v in values]), np.array(halves)


def _draw_line(result: Numbers, j: int, key: int, ax: Any) -> None:
    values, halves = _spans(result, j)
    places = [row[key] for row in result.rows]
    (line,) = ax.plot(places, values, marker="o" if len(places) <= MOST_BARS else None, ms=3)
    if not np.isnan(halves).all():
        low, high = values - halves, values + halves
        ax.fill_between(places, low, high, alpha=0.25, color=line.get_color(), lw=0)
    ax.set_title(WITHOUT if np.isnan(halves).all() else SPAN, fontsize="small")


def _draw_bars(result: Numbers, j: int, keys: Sequence[int], ax: Any) -> None:
    values, halves = _spans(result, j)
    values, halves = values[:MOST_BARS], halves[:MOST_BARS]
    names = [_label(tuple(row[k] for k in keys)) for row in result.rows[:MOST_BARS]]
    errors = None if np.isnan(halves).all() else halves
    places = np.arange(len(values))
    ax.barh(places, values, xerr=errors, capsize=3, alpha=0.8)
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    cut = len(result.rows) > MOST_BARS
    said = [f"the first {MOST_BARS} of {len(result.rows):,} rows"] if cut else []
    said += [WITHOUT if errors is None else SPAN]
    ax.set_title(", ".join(said), fontsize="small")
    if len(names) > 12:
        ax.figure.set_figheight(max(ax.figure.get_figheight(), 0.28 * len(names)))


def _draw_heat(result: Numbers, j: int, keys: Sequence[int], ax: Any) -> None:
    """A cell for each pair of keys; empty where there is none."""
    values, _ = _spans(result, j)
    downs, rights = ([*dict.fromkeys(row[k] for row in result.rows)] for k in keys)
    table = np.full((len(downs), len(rights)), np.nan)
    for row, value in zip(result.rows, values, strict=True):
        table[downs.index(row[keys[0]]), rights.index(row[keys[1]])] = value
    image = ax.imshow(table, aspect="auto", cmap="viridis", interpolation="nearest")
    for axis, names in ((ax.yaxis, downs), (ax.xaxis, rights)):
        step = -(-len(names) // MOST_CELLS)
        axis.set_ticks(range(0, len(names), step), [_label((each,)) for each in names[::step]])
    if max(map(len, map(str, rights))) > 4:
        for label in ax.get_xticklabels():
            label.set(rotation=45, ha="right", rotation_mode="anchor")
    ax.set(xlabel=_drawn(result.columns[keys[1]]), ylabel=_drawn(result.columns[keys[0]]))
    known = [each for each in result.stddev[j] or () if each is not None]
    spread = f"standard errors up to {max(known):.3g}" if known else WITHOUT
    ax.figure.colorbar(image, ax=ax, label=f"{_drawn(result.columns[j])} ({spread})")


def _label(values: Sequence[object]) -> str:
    return ", ".join("NULL" if each is None else _drawn(plain(each)) for each in values)


def _drawn(text: str) -> str:
    """A text in a picture, where a dollar would begin a formula."""
    return printable(text).replace("$", r"\$")
