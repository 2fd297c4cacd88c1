"""Tables drawn in text, cut to what a screen can show: rows and columns in the middle give way."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.errors import text_width
from dpsql.records import dataclass, replace
from dpsql.ui.grid import DisplayedColumn, Grid, clip, pad, shown_columns
from dpsql.ui.style import Style

NARROW = 8
"""Cells below which a column of text is left out rather than cut further."""


@dataclass(frozen=True, slots=True)
class BoxCharacters:
    """The characters of a frame."""

    corners: str
    dash: str
    bar: str
    cut: str
    gap: str
    plus_minus: str


UNICODE = BoxCharacters("┌┬┐├┼┤└┴┘", "─", "│", "…", "·", "±")
ASCII = BoxCharacters("+++++++++", "-", "|", "...", ":", "+/-")


def draw_box(grid: Grid, style: Style) -> str:
    """Draw a table with a ± column next to every noisy column; what is left out is counted."""
    marks = UNICODE if style.unicode else ASCII
    columns = [_readable(column, style) for column in shown_columns(grid, marks.plus_minus)]
    if not columns:
        return ""
    columns, left_out = _cut_rows(columns, style.rows, marks)
    columns, hidden = _cut_columns(columns, style.width, marks)
    widths = _fit(columns, style.width)
    rules = [_rule(marks.corners[3 * i : 3 * i + 3], marks.dash, widths) for i in range(3)]
    header = [clip(column.header, w, marks.cut) for column, w in zip(columns, widths, strict=True)]
    lines = [rules[0], _line(header, columns, widths, marks, style, head=True), rules[1]]
    for i in range(len(columns[0].cells)):
        cells = [clip(c.cells[i], w, marks.cut) for c, w in zip(columns, widths, strict=True)]
        lines.append(_line(cells, columns, widths, marks, style))
    told = [_told("row", grid.count, left_out), _told("column", len(grid.columns), hidden)]
    footer = ", ".join(each for each in told if each)
    return "\n".join([*lines, rules[2], *([footer] if footer else [])]) + "\n"


def _told(what: str, count: int, left_out: int) -> str:
    return f"{count:,} {what}s ({count - left_out:,} shown)" if left_out else ""


def _readable(column: DisplayedColumn, style: Style) -> DisplayedColumn:
    """A column in characters that the target has."""
    if style.unicode:
        return column
    header, *cells = (
        text.encode("ascii", "backslashreplace").decode() for text in (column.header, *column.cells)
    )
    return replace(column, header=header, cells=tuple(cells))


def _cut_rows(
    columns: list[DisplayedColumn], most: int | None, marks: BoxCharacters
) -> tuple[list[DisplayedColumn], int]:
    """Leave out rows in the middle; say how many."""
    count = len(columns[0].cells)
    if most is None or count <= most:
        return columns, 0
    first, last = most - most // 2, most // 2
    cut = [
        replace(each, cells=(*each.cells[:first], marks.gap, *each.cells[count - last :]))
        for each in columns
    ]
    return cut, count - most


def _cut_columns(
    columns: list[DisplayedColumn], limit: int | None, marks: BoxCharacters
) -> tuple[list[DisplayedColumn], int]:
    """Leave out columns in the middle, each with its errors; say how many."""
    groups: list[list[DisplayedColumn]] = []
    for column in columns:
        if column.error:
            groups[-1].append(column)
        else:
            groups.append([column])
    if limit is None or _least(columns) <= limit:
        return columns, 0
    gap = DisplayedColumn(marks.cut, (marks.cut,) * len(columns[0].cells), False)
    first, last = 1, 0
    for turn in range(1, len(groups)):
        more = (first, last + 1) if turn % 2 else (first + 1, last)
        kept = [*groups[: more[0]], [gap], *groups[len(groups) - more[1] :]]
        if sum(more) < len(groups) and _least([c for group in kept for c in group]) <= limit:
            first, last = more
    kept = [*groups[:first], [gap], *groups[len(groups) - last :]]
    if len(groups) == 1:
        return columns, 0
    return [column for group in kept for column in group], len(groups) - first - last


def _widths(column: DisplayedColumn) -> int:
    return max(map(text_width, (column.header, *column.cells)))


def _least(columns: Sequence[DisplayedColumn]) -> int:
    """The least width of a frame around columns: numbers are never cut."""
    widths = [_widths(each) if each.right else min(NARROW, _widths(each)) for each in columns]
    return sum(widths) + 3 * len(widths) + 1


def _fit(columns: list[DisplayedColumn], limit: int | None) -> list[int]:
    """Choose widths; text columns give way, widest first, when the terminal is narrow."""
    widths = [_widths(column) for column in columns]
    if limit is None:
        return widths
    shrinkable = [j for j, column in enumerate(columns) if not column.right]
    excess = sum(widths) + 3 * len(widths) + 1 - limit
    while excess > 0 and shrinkable:
        widest = max(shrinkable, key=lambda j: widths[j])
        if widths[widest] <= NARROW:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _rule(corners: str, dash: str, widths: list[int]) -> str:
    return corners[0] + corners[1].join(dash * (w + 2) for w in widths) + corners[2]


def _line(
    cells: list[str],
    columns: list[DisplayedColumn],
    widths: list[int],
    marks: BoxCharacters,
    style: Style,
    head: bool = False,
) -> str:
    padded = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        text = f" {pad(cell, width, column.right)} "
        if style.colour and head:
            text = f"\x1b[1m{text}\x1b[0m"
        elif style.colour and (column.error or cell == "NULL"):
            text = f"\x1b[2m{text}\x1b[0m"
        padded.append(text)
    return marks.bar + marks.bar.join(padded) + marks.bar
